//! The storage of cleanup notes.
//!
//! ```text
//! <data>/remote-cleanup/SESSION.json    the files of a session, and of others of its tenant that were deleted with it
//! <data>/remote-cleanup/skills-….json   the skills of a tenant
//! <data>/remote-cleanup/lock            locked by a process that changes a note
//! ```
//!
//! State: these files, each replaced atomically. If sessions are recorded in memory, the notes are in memory, too. A
//! note outlives the tenant's directory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SessionId, SystemClock, TenantId, lock, with_deadline};
use conjure_fs::{FileLock, LockWait, ensure_dir, ignore_absent, names_in, replace_file, sync_dir};
use rustix::io::Errno;
use serde::Deserialize;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::runtime::data::data_layout::RuntimeDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::options::JournalLocation;
use crate::runtime::remote_cleanup::cleanup_note::{CleanupNote, FORMAT};
use crate::runtime::task_set::run_blocking;

/// The name of the operation, for errors.
const NOTING: &str = "writing a cleanup note";
/// How long a deletion waits for others that change notes. A change is short, unless its process is paused.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// The notes of a data directory. Clones share them.
#[derive(Debug, Clone)]
pub(crate) enum NoteStore {
    Disk(DiskNotes),
    Memory(Arc<Mutex<BTreeMap<String, CleanupNote>>>),
}

/// A directory of notes.
#[derive(Debug, Clone)]
pub(crate) struct DiskNotes {
    dir: PathBuf,
    /// Serialises changes in this process; the lock file serialises processes.
    exclusive: Arc<AsyncMutex<()>>,
}

/// The lock for changing notes. The kernel releases it when the process ends.
struct NotesLock {
    _lock: FileLock,
    _turn: OwnedMutexGuard<()>,
}

/// The result of trying to lock.
enum LockAttempt {
    Locked(FileLock),
    /// Another process has the lock.
    Taken,
    /// There is no directory, so no note was ever written.
    Nothing,
}

/// What happens to a changed note.
enum NoteUpdate {
    Keep,
    Replace,
}

impl NoteStore {
    /// The notes of this data directory. Reads nothing.
    pub(crate) fn new(home: &RuntimeDir) -> Self {
        match home.record() {
            JournalLocation::OnDisk => Self::on_disk(home.path().join("remote-cleanup")),
            JournalLocation::InMemory => Self::Memory(Arc::default()),
        }
    }

    fn on_disk(dir: PathBuf) -> Self {
        Self::Disk(DiskNotes { dir, exclusive: Arc::default() })
    }

    /// Writes a note before a deletion, and returns its name. It replaces what earlier notes of this name say about the
    /// same sessions. The note is on the disk when this returns.
    pub(crate) async fn put(&self, note: CleanupNote) -> Result<Option<String>, RuntimeError> {
        let Some(name) = note.name() else { return Ok(None) };
        if let Self::Disk(DiskNotes { dir, .. }) = self {
            let dir = dir.clone();
            let create = move || create_dir(&dir).map_err(|error| RuntimeError::data(&dir, &error));
            run_blocking(NOTING, create).await?;
        }
        let put = |before| (NoteUpdate::Replace, Some(note.merged_over(before)));
        self.change(&name, SystemClock.deadline(LOCK_TIMEOUT), put).await?;
        Ok(Some(name))
    }

    /// Removes a session that is not deleted from its note.
    pub(crate) async fn remove_session(&self, session: SessionId) -> Result<(), RuntimeError> {
        let deadline = SystemClock.deadline(LOCK_TIMEOUT);
        self.update(&session.stored_name(), deadline, move |note| note.forget(session)).await
    }

    /// Applies `change` to the current version of a note. A note without content is removed, and a missing note is
    /// ignored. `deadline` limits the wait for others that change notes.
    pub(super) async fn update(
        &self,
        name: &str,
        deadline: Deadline,
        change: impl FnOnce(&mut CleanupNote) + Send + 'static,
    ) -> Result<(), RuntimeError> {
        let changed = move |note: Option<CleanupNote>| {
            let Some(mut note) = note else { return (NoteUpdate::Keep, None) };
            change(&mut note);
            (NoteUpdate::Replace, Some(note).filter(|note| !note.is_empty()))
        };
        self.change(name, deadline, changed).await
    }

    /// The names of all notes, in order.
    pub(crate) async fn names(&self) -> Result<Vec<String>, RuntimeError> {
        self.work(|store| match store {
            Self::Memory(notes) => Ok(lock(notes).keys().cloned().collect()),
            Self::Disk(DiskNotes { dir, .. }) => {
                let files = names_in(dir).map_err(|error| RuntimeError::data(dir, &error))?;
                let names = files.iter().filter_map(|name| name.strip_suffix(".json"));
                let mut names: Vec<_> = names.map(str::to_owned).collect();
                names.sort();
                Ok(names)
            }
        })
        .await
    }

    /// The names of the notes about sessions of this tenant.
    pub(super) async fn names_for_tenant(&self, tenant: &TenantId) -> Result<Vec<String>, RuntimeError> {
        let (mut names, tenant) = (self.names().await?, tenant.clone());
        self.work(move |store| {
            // A note that cannot be read is reported when it is processed.
            names.retain(|name| {
                store.read(name).is_ok_and(|note| note.is_some_and(|note| note.tenant == tenant))
            });
            Ok(names)
        })
        .await
    }

    /// Reads a note. `None` if it does not exist.
    pub(super) async fn get(&self, name: &str) -> Result<Option<CleanupNote>, RuntimeError> {
        let name = name.to_owned();
        self.work(move |store| store.read(&name)).await
    }

    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let store = self.clone();
        run_blocking(NOTING, move || work(&store)).await
    }

    fn read(&self, name: &str) -> Result<Option<CleanupNote>, RuntimeError> {
        match self {
            Self::Memory(notes) => Ok(lock(notes).get(name).cloned()),
            Self::Disk(DiskNotes { dir, .. }) => {
                let path = note_path(dir, name);
                let read = read(&path);
                read.map_err(|error| RuntimeError::data(&path, &error))
            }
        }
    }

    async fn change(
        &self,
        name: &str,
        deadline: Deadline,
        change: impl FnOnce(Option<CleanupNote>) -> (NoteUpdate, Option<CleanupNote>) + Send + 'static,
    ) -> Result<(), RuntimeError> {
        match self {
            Self::Memory(notes) => {
                let mut notes = lock(notes);
                match change(notes.get(name).cloned()) {
                    (NoteUpdate::Keep, _) => {}
                    (NoteUpdate::Replace, Some(note)) => drop(notes.insert(name.to_owned(), note)),
                    (NoteUpdate::Replace, None) => drop(notes.remove(name)),
                }
                Ok(())
            }
            Self::Disk(disk) => {
                let Some(locked) = disk.lock(deadline).await? else { return Ok(()) };
                let path = note_path(&disk.dir, name);
                let changing = move || {
                    // The lock is held until the change is complete, even if the caller's future is dropped.
                    let _locked = locked;
                    change_file(&path, change).map_err(|error| RuntimeError::data(&path, &error))
                };
                run_blocking(NOTING, changing).await
            }
        }
    }
}

impl DiskNotes {
    /// Waits for the lock for changing notes. `None` if no note was ever written. It tries at least once, even after
    /// the deadline.
    async fn lock(&self, deadline: Deadline) -> Result<Option<NotesLock>, RuntimeError> {
        let path = self.dir.join("lock");
        let busy = || RuntimeError::DataDirBusy { path: path.clone() };
        let turn = with_deadline(&SystemClock, deadline, Arc::clone(&self.exclusive).lock_owned());
        let turn = turn.await.map_err(|_| busy())?;
        let mut wait = LockWait::new(deadline);
        loop {
            let file = path.clone();
            let trying = move || try_lock(&file).map_err(|error| RuntimeError::data(&file, &error));
            match run_blocking(NOTING, trying).await? {
                LockAttempt::Locked(lock) => return Ok(Some(NotesLock { _lock: lock, _turn: turn })),
                LockAttempt::Nothing => return Ok(None),
                LockAttempt::Taken if wait.next().await => {}
                LockAttempt::Taken => return Err(busy()),
            }
        }
    }
}

fn change_file(
    path: &Path,
    change: impl FnOnce(Option<CleanupNote>) -> (NoteUpdate, Option<CleanupNote>),
) -> io::Result<()> {
    let note = match read(path) {
        // A damaged note cannot be used, so it counts as missing.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            None
        }
        note => note?,
    };
    match change(note) {
        (NoteUpdate::Keep, _) => Ok(()),
        (NoteUpdate::Replace, None) => ignore_absent(fs::remove_file(path)).map(drop),
        (NoteUpdate::Replace, Some(note)) => replace_file(path, &serde_json::to_vec(&note)?),
    }
}

/// Creates the directory, and syncs it to the disk.
fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    ensure_dir(dir)?;
    dir.parent().map_or(Ok(()), sync_dir)
}

fn note_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.json"))
}

/// Tries once to get the lock. It never blocks, because the holder may be paused.
fn try_lock(path: &Path) -> io::Result<LockAttempt> {
    let file = match FileLock::open(path) {
        Err(Errno::NOENT) => return Ok(LockAttempt::Nothing),
        file => file?,
    };
    Ok(FileLock::try_exclusive(file)?.map_or(LockAttempt::Taken, LockAttempt::Locked))
}

fn read(path: &Path) -> io::Result<Option<CleanupNote>> {
    // Reads only the format version. A note of another version may hold anything.
    #[derive(Deserialize)]
    struct Form {
        format: serde_json::Value,
    }
    let Some(text) = ignore_absent(fs::read(path))? else { return Ok(None) };
    let Form { format } = serde_json::from_slice(&text)?;
    if format != FORMAT {
        let reason = format!("it has format {format}, but this version supports {FORMAT}");
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use conjure_base::Timestamp;

    use super::*;
    use crate::runtime::remote_cleanup::cleanup_note::FilesToDelete;

    fn sample_note(number: u128, files: &[&str]) -> CleanupNote {
        let entry = FilesToDelete {
            session: SessionId::from_bits(number),
            model: None,
            account: None,
            files: files.iter().map(|file| (*file).to_owned()).collect(),
        };
        CleanupNote::new(TenantId::new("acme").unwrap(), Timestamp::from_millis(1), vec![entry])
    }

    fn soon() -> Deadline {
        SystemClock.deadline(Duration::from_secs(60))
    }

    #[tokio::test]
    async fn a_note_is_changed_as_it_is_and_goes_with_its_last_file() {
        let dir = tempfile::tempdir().unwrap();
        for store in
            [NoteStore::Memory(Arc::default()), NoteStore::on_disk(dir.path().join("remote-cleanup"))]
        {
            assert!(store.names().await.unwrap().is_empty());
            store.remove_session(SessionId::from_bits(3)).await.unwrap();
            assert!(!dir.path().join("remote-cleanup").exists(), "who looks makes nothing");
            let name = store.put(sample_note(1, &["a", "b"])).await.unwrap().unwrap();
            assert_eq!(
                store.put(sample_note(2, &[])).await.unwrap().map(|name| name.len()),
                Some(name.len())
            );
            store.remove_session(SessionId::from_bits(2)).await.unwrap();
            assert_eq!(store.names().await.unwrap(), std::slice::from_ref(&name));
            let ids_of = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
            let (one, session) = (ids_of(&["a"]), SessionId::from_bits(1));
            store.update(&name, soon(), move |note| note.remove_files(session, &one)).await.unwrap();
            assert_eq!(store.get(&name).await.unwrap(), Some(sample_note(1, &["b"])));
            let other = ids_of(&["b"]);
            store.update(&name, soon(), move |note| note.remove_files(session, &other)).await.unwrap();
            assert_eq!(store.get(&name).await.unwrap(), None);
            // A late update does not bring it back.
            store.update(&name, soon(), |note| note.refusals += 1).await.unwrap();
            assert!(store.names().await.unwrap().is_empty());
        }
    }

    #[tokio::test]
    async fn what_cannot_be_understood_is_reported_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = NoteStore::on_disk(dir.path().to_owned());
        let name = store.put(sample_note(1, &["a"])).await.unwrap().unwrap();
        let path = dir.path().join(format!("{name}.json"));
        let later = fs::read_to_string(&path).unwrap().replace("\"format\":1", "\"format\":2");
        for text in ["", "{", "{\"since\":1}", "{\"format\":1,\"whose\":\"acme\"}"] {
            fs::write(&path, text).unwrap();
            let error = store.get(&name).await.unwrap_err();
            assert!(error.to_string().contains(&name), "{error}");
            store.update(&name, soon(), |_| {}).await.unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        // A note of a later version, or one that cannot be read just now, is not replaced.
        for text in [later.as_str(), "{\"whose\":\"acme\",\"format\":2}", "{\"format\":\"2.1\",\"left\":{}}"]
        {
            fs::write(&path, text).unwrap();
            for error in [
                store.get(&name).await.unwrap_err(),
                store.update(&name, soon(), |_| {}).await.unwrap_err(),
                store.put(sample_note(1, &["b"])).await.unwrap_err(),
            ] {
                assert!(error.to_string().contains("this version supports 1"), "{error}");
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        store.put(sample_note(1, &["b"])).await.unwrap_err();
        fs::remove_dir(&path).unwrap();
        // A damaged note is replaced.
        fs::write(&path, "{").unwrap();
        store.put(sample_note(1, &["b"])).await.unwrap();
        assert_eq!(store.get(&name).await.unwrap(), Some(sample_note(1, &["b"])));
        // A draft of a killed process is no note.
        fs::write(dir.path().join("x.new"), "").unwrap();
        assert_eq!(store.names().await.unwrap(), [name]);
    }
    #[tokio::test(start_paused = true)]
    async fn who_holds_the_lock_and_does_nothing_is_not_waited_for_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let store = NoteStore::on_disk(dir.path().to_owned());
        let name = store.put(sample_note(1, &["a"])).await.unwrap().unwrap();
        let held = fs::File::open(dir.path().join("lock")).unwrap();
        held.lock().unwrap();
        let now = SystemClock.deadline(Duration::ZERO);
        for error in [
            store.update(&name, now, |note| note.refusals += 1).await.unwrap_err(),
            store.put(sample_note(1, &["b"])).await.unwrap_err(),
            store.remove_session(SessionId::from_bits(1)).await.unwrap_err(),
        ] {
            assert!(matches!(error, RuntimeError::DataDirBusy { .. }) && error.is_retryable(), "{error}");
        }
        // Readers wait for nobody.
        assert_eq!(store.get(&name).await.unwrap(), Some(sample_note(1, &["a"])));
        // A released lock is acquired.
        let let_go = async {
            SystemClock.sleep_until(SystemClock.deadline(Duration::from_secs(5))).await;
            drop(held);
        };
        let (put, ()) = futures_util::future::join(store.put(sample_note(1, &["a", "b"])), let_go).await;
        assert_eq!(put.unwrap().as_ref(), Some(&name));
        assert_eq!(store.get(&name).await.unwrap(), Some(sample_note(1, &["a", "b"])));
    }
}
