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
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use conjure_base::{SessionId, TenantId};

use super::super::error::RuntimeError;
use super::super::home::Home;
use super::super::options::Record;
use super::super::outfit::blocking;
use super::noted::{FORMAT, Remains};

/// The notes of a data folder. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) enum Shelf {
    Disk(PathBuf),
    Memory(Arc<Mutex<BTreeMap<String, Remains>>>),
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
            Record::OnDisk => Self::Disk(home.path().join("remains")),
            Record::InMemory => Self::Memory(Arc::default()),
        }
    }

    /// Notes what a deletion is about to leave, in place of what was noted of these sessions under this name. It is on the disk then.
    pub(crate) async fn put(&self, remains: Remains) -> Result<Option<String>, RuntimeError> {
        let Some(name) = remains.name() else { return Ok(None) };
        let noted = name.clone();
        let put = move |shelf: &Self| {
            if let Self::Disk(folder) = shelf {
                make(folder).map_err(|error| RuntimeError::data(folder, &error))?;
            }
            shelf.change(&noted, |before| (Change::Replace, Some(remains.over(before))))
        };
        self.work(put).await?;
        Ok(Some(name))
    }

    /// Takes back what was noted of a session that is not deleted.
    pub(crate) async fn take_back(&self, session: SessionId) -> Result<(), RuntimeError> {
        self.update(&session.to_string(), move |noted| noted.forget(session)).await
    }

    /// Changes a note as it is by now; one without files goes. Nothing, where it is gone.
    pub(super) async fn update(
        &self,
        name: &str,
        change: impl FnOnce(&mut Remains) + Send + 'static,
    ) -> Result<(), RuntimeError> {
        let name = name.to_owned();
        let changed = move |noted: Option<Remains>| {
            let Some(mut noted) = noted else { return (Change::Keep, None) };
            change(&mut noted);
            (Change::Replace, Some(noted).filter(|noted| !noted.is_empty()))
        };
        self.work(move |shelf| shelf.change(&name, changed)).await
    }

    /// What there are, by name, in order.
    pub(crate) async fn names(&self) -> Result<Vec<String>, RuntimeError> {
        self.work(|shelf| match shelf {
            Self::Memory(notes) => {
                Ok(notes.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect())
            }
            Self::Disk(folder) => {
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
        blocking("noting what is left at a service", move || work(&shelf)).await
    }

    fn read(&self, name: &str) -> Result<Option<Remains>, RuntimeError> {
        match self {
            Self::Memory(notes) => {
                Ok(notes.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned())
            }
            Self::Disk(folder) => {
                let path = place(folder, name);
                let read = read(&path);
                read.map_err(|error| RuntimeError::data(&path, &error))
            }
        }
    }

    fn change(
        &self,
        name: &str,
        change: impl FnOnce(Option<Remains>) -> (Change, Option<Remains>),
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
            Self::Disk(folder) => {
                let path = place(folder, name);
                change_file(folder, &path, change).map_err(|error| RuntimeError::data(&path, &error))
            }
        }
    }
}

fn change_file(
    folder: &Path,
    path: &Path,
    change: impl FnOnce(Option<Remains>) -> (Change, Option<Remains>),
) -> io::Result<()> {
    let _lock = match lock(folder) {
        // Nothing was ever noted.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        lock => Some(lock?),
    };
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

/// Others of this process, and other processes, change notes one at a time. The kernel lets go of it when a process ends.
fn lock(folder: &Path) -> io::Result<File> {
    let path = folder.join("lock");
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    lock.lock()?;
    Ok(lock)
}

fn read(path: &Path) -> io::Result<Option<Remains>> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let noted: Remains = serde_json::from_slice(&text)?;
    if noted.format != FORMAT {
        let reason = format!("it has format {}, and this version knows {FORMAT}", noted.format);
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    Ok(Some(noted))
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

    #[tokio::test]
    async fn a_note_is_changed_as_it_is_and_goes_with_its_last_file() {
        let folder = tempfile::tempdir().unwrap();
        for shelf in [Shelf::Memory(Arc::default()), Shelf::Disk(folder.path().join("remains"))] {
            assert!(shelf.names().await.unwrap().is_empty());
            shelf.take_back(SessionId::from_bits(3)).await.unwrap();
            assert!(!folder.path().join("remains").exists(), "who looks makes nothing");
            let name = shelf.put(remains(1, &["a", "b"])).await.unwrap().unwrap();
            assert_eq!(shelf.put(remains(2, &[])).await.unwrap().map(|name| name.len()), Some(name.len()));
            shelf.take_back(SessionId::from_bits(2)).await.unwrap();
            assert_eq!(shelf.names().await.unwrap(), std::slice::from_ref(&name));
            let gone = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
            let (one, session) = (gone(&["a"]), SessionId::from_bits(1));
            shelf.update(&name, move |noted| noted.take_off(session, &one)).await.unwrap();
            assert_eq!(shelf.get(&name).await.unwrap(), Some(remains(1, &["b"])));
            let other = gone(&["b"]);
            shelf.update(&name, move |noted| noted.take_off(session, &other)).await.unwrap();
            assert_eq!(shelf.get(&name).await.unwrap(), None);
            // Who still has it in mind does not bring it back.
            shelf.update(&name, |noted| noted.refusals += 1).await.unwrap();
            assert!(shelf.names().await.unwrap().is_empty());
        }
    }

    #[tokio::test]
    async fn what_cannot_be_understood_is_told_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::Disk(folder.path().to_owned());
        let name = shelf.put(remains(1, &["a"])).await.unwrap().unwrap();
        let path = folder.path().join(format!("{name}.json"));
        let later = fs::read_to_string(&path).unwrap().replace("\"format\":1", "\"format\":2");
        for text in ["", "{", later.as_str()] {
            fs::write(&path, text).unwrap();
            let error = shelf.get(&name).await.unwrap_err();
            assert!(error.to_string().contains(&name), "{error}");
            assert_eq!(shelf.update(&name, |_| {}).await.is_err(), text == later);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        // What is good for a later version, or only cannot be read just now, is not replaced.
        shelf.put(remains(1, &["b"])).await.unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), later);
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
}
