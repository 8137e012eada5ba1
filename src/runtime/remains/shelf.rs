//! Where the notes lie.
//!
//! ```text
//! <data>/remains/SESSION.json    what is to be deleted of a session, and of others of its tenant that went with it
//! <data>/remains/skills-….json   the skills of a tenant
//! <data>/remains/lock            held by who changes one
//! ```
//!
//! State: these files, each replaced as a whole; in memory, where sessions are recorded nowhere else. One outlives the tenant's folder.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SessionId, SystemClock, TenantId};
use serde::Deserialize;
use tokio::sync::{Mutex as Turns, OwnedMutexGuard};

use super::super::error::RuntimeError;
use super::super::home::Home;
use super::super::options::Record;
use super::super::outfit::blocking;
use super::noted::{FORMAT, Remains};

/// What is being done when it breaks off.
const NOTING: &str = "noting what is left at a service";
/// How long who deletes something waits for others who change notes. They take a moment each, unless their process is stopped.
const WAITING: Duration = Duration::from_secs(30);
/// How soon the lock that another process has is tried again; twice as long each time, up to the other.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(50);

/// The notes of a data folder. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) enum Shelf {
    Disk(OnDisk),
    Memory(Arc<Mutex<BTreeMap<String, Remains>>>),
}

/// A folder of notes.
#[derive(Debug, Clone)]
pub(crate) struct OnDisk {
    folder: PathBuf,
    /// Those of this process who change notes take turns; of all processes, the lock's file lets in one.
    turns: Arc<Turns<()>>,
}

/// The right to change notes. The kernel lets go of the lock when a process ends.
struct Locked {
    _lock: File,
    _turn: OwnedMutexGuard<()>,
}

/// What came of trying to lock.
enum Tried {
    Locked(File),
    /// Somebody else has it.
    Taken,
    /// There is no folder: nothing was ever noted.
    Nothing,
}

/// What becomes of a note that is changed.
enum Change {
    Keep,
    Replace,
}

impl Shelf {
    /// That of this data folder. Looks for nothing.
    pub(crate) fn of(home: &Home) -> Self {
        match home.record() {
            Record::OnDisk => Self::on_disk(home.path().join("remains")),
            Record::InMemory => Self::Memory(Arc::default()),
        }
    }

    fn on_disk(folder: PathBuf) -> Self {
        Self::Disk(OnDisk { folder, turns: Arc::default() })
    }

    /// Notes what a deletion is about to leave, in place of what was noted of these sessions under this name. It is on the disk then.
    pub(crate) async fn put(&self, remains: Remains) -> Result<Option<String>, RuntimeError> {
        let Some(name) = remains.name() else { return Ok(None) };
        if let Self::Disk(OnDisk { folder, .. }) = self {
            let folder = folder.clone();
            let made = move || make(&folder).map_err(|error| RuntimeError::data(&folder, &error));
            blocking(NOTING, made).await?;
        }
        let put = |before| (Change::Replace, Some(remains.over(before)));
        self.change(&name, SystemClock.deadline(WAITING), put).await?;
        Ok(Some(name))
    }

    /// Takes back what was noted of a session that is not deleted.
    pub(crate) async fn take_back(&self, session: SessionId) -> Result<(), RuntimeError> {
        let deadline = SystemClock.deadline(WAITING);
        self.update(&session.to_string(), deadline, move |noted| noted.forget(session)).await
    }

    /// Changes a note as it is by now; one without files goes. Nothing, where it is gone. `deadline`: for how long others who change
    /// notes are waited for.
    pub(super) async fn update(
        &self,
        name: &str,
        deadline: Deadline,
        change: impl FnOnce(&mut Remains) + Send + 'static,
    ) -> Result<(), RuntimeError> {
        let changed = move |noted: Option<Remains>| {
            let Some(mut noted) = noted else { return (Change::Keep, None) };
            change(&mut noted);
            (Change::Replace, Some(noted).filter(|noted| !noted.is_empty()))
        };
        self.change(name, deadline, changed).await
    }

    /// What there are, by name, in order.
    pub(crate) async fn names(&self) -> Result<Vec<String>, RuntimeError> {
        self.work(|shelf| match shelf {
            Self::Memory(notes) => {
                Ok(notes.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect())
            }
            Self::Disk(OnDisk { folder, .. }) => {
                let mut names = names_in(folder).map_err(|error| RuntimeError::data(folder, &error))?;
                names.sort();
                Ok(names)
            }
        })
        .await
    }

    /// Those that are about sessions of this tenant.
    pub(super) async fn of_tenant(&self, tenant: &TenantId) -> Result<Vec<String>, RuntimeError> {
        let (mut names, tenant) = (self.names().await?, tenant.clone());
        self.work(move |shelf| {
            // What cannot be read is told when it is to be carried out.
            names.retain(|name| {
                shelf.read(name).is_ok_and(|noted| noted.is_some_and(|noted| noted.tenant == tenant))
            });
            Ok(names)
        })
        .await
    }

    /// One of them; nothing, where it is gone.
    pub(super) async fn get(&self, name: &str) -> Result<Option<Remains>, RuntimeError> {
        let name = name.to_owned();
        self.work(move |shelf| shelf.read(&name)).await
    }

    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let shelf = self.clone();
        blocking(NOTING, move || work(&shelf)).await
    }

    fn read(&self, name: &str) -> Result<Option<Remains>, RuntimeError> {
        match self {
            Self::Memory(notes) => {
                Ok(notes.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned())
            }
            Self::Disk(OnDisk { folder, .. }) => {
                let path = place(folder, name);
                let read = read(&path);
                read.map_err(|error| RuntimeError::data(&path, &error))
            }
        }
    }

    async fn change(
        &self,
        name: &str,
        deadline: Deadline,
        change: impl FnOnce(Option<Remains>) -> (Change, Option<Remains>) + Send + 'static,
    ) -> Result<(), RuntimeError> {
        match self {
            Self::Memory(notes) => {
                let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
                match change(notes.get(name).cloned()) {
                    (Change::Keep, _) => {}
                    (Change::Replace, Some(noted)) => drop(notes.insert(name.to_owned(), noted)),
                    (Change::Replace, None) => drop(notes.remove(name)),
                }
                Ok(())
            }
            Self::Disk(disk) => {
                let Some(locked) = disk.lock(deadline).await? else { return Ok(()) };
                let (folder, path) = (disk.folder.clone(), place(&disk.folder, name));
                let changing = move || {
                    // Also where nobody waits for it any more, it is let go of when that is done, and not before.
                    let _locked = locked;
                    change_file(&folder, &path, change).map_err(|error| RuntimeError::data(&path, &error))
                };
                blocking(NOTING, changing).await
            }
        }
    }
}

impl OnDisk {
    /// Waits for the right to change notes; `None` where nothing was ever noted. Without waiting, it is tried once.
    async fn lock(&self, deadline: Deadline) -> Result<Option<Locked>, RuntimeError> {
        let path = self.folder.join("lock");
        let busy = || RuntimeError::Busy { path: path.clone() };
        let turn = tokio::select! {
            biased;
            turn = Arc::clone(&self.turns).lock_owned() => turn,
            () = SystemClock.sleep_until(deadline) => return Err(busy()),
        };
        let mut pause = SOON;
        loop {
            let file = path.clone();
            let trying = move || try_lock(&file).map_err(|error| RuntimeError::data(&file, &error));
            match blocking(NOTING, trying).await? {
                Tried::Locked(lock) => return Ok(Some(Locked { _lock: lock, _turn: turn })),
                Tried::Nothing => return Ok(None),
                Tried::Taken if SystemClock.remaining(deadline).is_zero() => return Err(busy()),
                Tried::Taken => {}
            }
            SystemClock.sleep_until(SystemClock.deadline(pause).earlier(deadline)).await;
            pause = pause.saturating_mul(2).min(LATER);
        }
    }
}

fn change_file(
    folder: &Path,
    path: &Path,
    change: impl FnOnce(Option<Remains>) -> (Change, Option<Remains>),
) -> io::Result<()> {
    let noted = match read(path) {
        // It is damaged, and of no use to anybody.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            None
        }
        noted => noted?,
    };
    match change(noted) {
        (Change::Keep, _) => Ok(()),
        (Change::Replace, None) => remove(path),
        (Change::Replace, Some(noted)) => write(folder, path, &noted),
    }
}

/// The folder, which is on the disk then.
fn make(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    folder.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

fn place(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.json"))
}

/// Whoever has it may be stopped, so it is never waited for here.
fn try_lock(path: &Path) -> io::Result<Tried> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let lock = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Tried::Nothing),
        lock => lock?,
    };
    match lock.try_lock() {
        Ok(()) => Ok(Tried::Locked(lock)),
        Err(TryLockError::WouldBlock) => Ok(Tried::Taken),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn read(path: &Path) -> io::Result<Option<Remains>> {
    // Which form it has is said before what is in it: another one may hold anything, and say its form in any way.
    #[derive(Deserialize)]
    struct Form {
        format: serde_json::Value,
    }
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let Form { format } = serde_json::from_slice(&text)?;
    if format != FORMAT {
        let reason = format!("it has format {format}, and this version knows {FORMAT}");
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    Ok(serde_json::from_slice(&text)?)
}

fn write(folder: &Path, path: &Path, noted: &Remains) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut new = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    new.write_all(&serde_json::to_vec(noted)?)?;
    new.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(folder)?.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
    let names = names.collect::<io::Result<Vec<_>>>()?;
    Ok(names.iter().flatten().filter_map(|name| name.strip_suffix(".json")).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use conjure_base::Timestamp;

    use super::super::noted::FilesLeft;
    use super::*;

    fn remains(number: u128, files: &[&str]) -> Remains {
        let left = FilesLeft {
            session: SessionId::from_bits(number),
            model: None,
            account: None,
            files: files.iter().map(|file| (*file).to_owned()).collect(),
        };
        Remains::new(TenantId::new("acme").unwrap(), Timestamp::from_millis(1), vec![left])
    }

    fn soon() -> Deadline {
        SystemClock.deadline(Duration::from_secs(60))
    }

    #[tokio::test]
    async fn a_note_is_changed_as_it_is_and_goes_with_its_last_file() {
        let folder = tempfile::tempdir().unwrap();
        for shelf in [Shelf::Memory(Arc::default()), Shelf::on_disk(folder.path().join("remains"))] {
            assert!(shelf.names().await.unwrap().is_empty());
            shelf.take_back(SessionId::from_bits(3)).await.unwrap();
            assert!(!folder.path().join("remains").exists(), "who looks makes nothing");
            let name = shelf.put(remains(1, &["a", "b"])).await.unwrap().unwrap();
            assert_eq!(shelf.put(remains(2, &[])).await.unwrap().map(|name| name.len()), Some(name.len()));
            shelf.take_back(SessionId::from_bits(2)).await.unwrap();
            assert_eq!(shelf.names().await.unwrap(), std::slice::from_ref(&name));
            let gone = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
            let (one, session) = (gone(&["a"]), SessionId::from_bits(1));
            shelf.update(&name, soon(), move |noted| noted.take_off(session, &one)).await.unwrap();
            assert_eq!(shelf.get(&name).await.unwrap(), Some(remains(1, &["b"])));
            let other = gone(&["b"]);
            shelf.update(&name, soon(), move |noted| noted.take_off(session, &other)).await.unwrap();
            assert_eq!(shelf.get(&name).await.unwrap(), None);
            // Who still has it in mind does not bring it back.
            shelf.update(&name, soon(), |noted| noted.refusals += 1).await.unwrap();
            assert!(shelf.names().await.unwrap().is_empty());
        }
    }

    #[tokio::test]
    async fn what_cannot_be_understood_is_told_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::on_disk(folder.path().to_owned());
        let name = shelf.put(remains(1, &["a"])).await.unwrap().unwrap();
        let path = folder.path().join(format!("{name}.json"));
        let later = fs::read_to_string(&path).unwrap().replace("\"format\":1", "\"format\":2");
        for text in ["", "{", "{\"since\":1}", "{\"format\":1,\"whose\":\"acme\"}"] {
            fs::write(&path, text).unwrap();
            let error = shelf.get(&name).await.unwrap_err();
            assert!(error.to_string().contains(&name), "{error}");
            shelf.update(&name, soon(), |_| {}).await.unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        // What is good for a later version, whatever that holds, or only cannot be read just now, is not replaced.
        for text in [later.as_str(), "{\"whose\":\"acme\",\"format\":2}", "{\"format\":\"2.1\",\"left\":{}}"]
        {
            fs::write(&path, text).unwrap();
            for error in [
                shelf.get(&name).await.unwrap_err(),
                shelf.update(&name, soon(), |_| {}).await.unwrap_err(),
                shelf.put(remains(1, &["b"])).await.unwrap_err(),
            ] {
                assert!(error.to_string().contains("this version knows 1"), "{error}");
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        shelf.put(remains(1, &["b"])).await.unwrap_err();
        fs::remove_dir(&path).unwrap();
        // What is damaged is.
        fs::write(&path, "{").unwrap();
        shelf.put(remains(1, &["b"])).await.unwrap();
        assert_eq!(shelf.get(&name).await.unwrap(), Some(remains(1, &["b"])));
        // A draft of who was killed is none.
        fs::write(folder.path().join("x.new"), "").unwrap();
        assert_eq!(shelf.names().await.unwrap(), [name]);
    }
    #[tokio::test(start_paused = true)]
    async fn who_holds_the_lock_and_does_nothing_is_not_waited_for_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::on_disk(folder.path().to_owned());
        let name = shelf.put(remains(1, &["a"])).await.unwrap().unwrap();
        let held = File::open(folder.path().join("lock")).unwrap();
        held.lock().unwrap();
        let now = SystemClock.deadline(Duration::ZERO);
        for error in [
            shelf.update(&name, now, |noted| noted.refusals += 1).await.unwrap_err(),
            shelf.put(remains(1, &["b"])).await.unwrap_err(),
            shelf.take_back(SessionId::from_bits(1)).await.unwrap_err(),
        ] {
            assert!(matches!(error, RuntimeError::Busy { .. }) && error.is_retryable(), "{error}");
        }
        // Whoever looks waits for nobody.
        assert_eq!(shelf.get(&name).await.unwrap(), Some(remains(1, &["a"])));
        // One that comes free is had.
        let let_go = async {
            SystemClock.sleep_until(SystemClock.deadline(Duration::from_secs(5))).await;
            drop(held);
        };
        let (put, ()) = futures_util::future::join(shelf.put(remains(1, &["a", "b"])), let_go).await;
        assert_eq!(put.unwrap().as_ref(), Some(&name));
        assert_eq!(shelf.get(&name).await.unwrap(), Some(remains(1, &["a", "b"])));
    }
}
