//! The lock file of each process that uses a data directory. It shows which processes are dead, so that others need not
//! wait until their leases end.
//!
//! ```text
//! <data>/processes/NAME          locked while the process lives; the name is the digest of its owner's name
//! <data>/processes/NAME.dead     the process was found dead recently, and its leftovers are swept
//! <data>/processes/startup.lock  locked by a process that is starting
//! ```
//!
//! State: these files. A process that has stopped everything removes its own file. If a process crashes, or ends before
//! everything is stopped, the kernel unlocks its file. A missing file says nothing about its process.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_base::{Clock as _, Digest, SystemClock};
use conjure_fs::{FileLock, ensure_dir};
use conjure_journal::LeaseOwner;

/// How long a dead process is remembered: longer than its leases last.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// The lock file of a process that is starting.
const STARTUP_LOCK: &str = "startup.lock";

/// The lock file of this process. While this exists, the process counts as alive. When it is dropped, the process
/// counts as dead, unless it was released before.
#[derive(Debug)]
pub(crate) struct ProcessLock {
    dir: PathBuf,
    own: PathBuf,
    _lock: FileLock,
}

/// Processes that were found dead and are not swept yet.
#[derive(Debug, Default)]
pub(crate) struct DeadProcesses {
    marks: Vec<PathBuf>,
}

impl DeadProcesses {
    pub(crate) const fn count(&self) -> usize {
        self.marks.len()
    }
}

impl ProcessLock {
    /// Locks this process's file, and returns the processes that were found dead. Blocks while other processes that
    /// start at the same time do this.
    ///
    /// Call [`ProcessLock::mark_swept`] once the leftovers of the dead processes are removed. Until then, every process
    /// that starts finds them, too.
    pub(crate) fn acquire(data: &Path, owner: &LeaseOwner) -> io::Result<(Self, DeadProcesses)> {
        let dir = data.join("processes");
        ensure_dir(&dir)?;
        // Held until this function returns. Otherwise another process could scan, and take the new file for that of a
        // dead process.
        let _startup = lock_startup(&dir)?;
        let name = name_of(owner);
        let (draft, own) = (dir.join(format!("{name}.new")), dir.join(&name));
        // The file is locked before it gets its name, so checking one process needs no startup lock.
        let lock = FileLock::try_exclusive(FileLock::open(&draft)?)?.ok_or(io::ErrorKind::WouldBlock)?;
        fs::rename(&draft, &own)?;
        let process_lock = Self { dir, own, _lock: lock };
        let dead = process_lock.scan_locked()?;
        Ok((process_lock, dead))
    }

    /// Scans for dead processes, as [`ProcessLock::acquire`] does. Blocks for the same reason.
    pub(crate) fn scan(&self) -> io::Result<DeadProcesses> {
        let _startup = lock_startup(&self.dir)?;
        self.scan_locked()
    }

    /// Marks these processes as swept, so that no process sweeps after them again. Blocks for the same reason as
    /// [`ProcessLock::acquire`].
    pub(crate) fn mark_swept(&self, dead: &DeadProcesses) -> io::Result<()> {
        let _startup = lock_startup(&self.dir)?;
        for path in &dead.marks {
            // Another process was faster, or a new process uses this name.
            let Some(_lock) = lock_of_dead(path) else { continue };
            // The date of the file shows when the death was found.
            fs::write(path.with_extension("dead"), b"")?;
            fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Removes this process's file. To be called when everything is stopped and nothing is left to sweep. Blocks
    /// briefly.
    pub(crate) fn release(&self) {
        remove(&self.own);
    }

    /// Whether this owner is a process that is known to be dead. Concurrent callers do not disturb each other.
    pub(crate) fn is_dead(&self, owner: &LeaseOwner) -> bool {
        let path = self.dir.join(name_of(owner));
        lock_of_dead(&path).is_some() || (!path.exists() && path.with_extension("dead").exists())
    }

    /// Finds dead processes, and removes the marks of those that died long ago.
    fn scan_locked(&self) -> io::Result<DeadProcesses> {
        let mut dead = DeadProcesses::default();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("dead") if is_old(&path) => remove(&path),
                Some("dead" | "lock") => {}
                _ if path == self.own => {}
                extension => {
                    let Some(_lock) = lock_of_dead(&path) else { continue };
                    if extension.is_some() {
                        // A process died while it created this file.
                        remove(&path);
                        continue;
                    }
                    dead.marks.push(path);
                }
            }
        }
        Ok(dead)
    }
}

/// Locks the startup of processes. Blocks while another process starts.
fn lock_startup(dir: &Path) -> io::Result<FileLock> {
    Ok(FileLock::exclusive(FileLock::open(&dir.join(STARTUP_LOCK))?)?)
}

/// Locks the file of a process, shared, if the process is dead. Concurrent callers do not disturb each other.
fn lock_of_dead(path: &Path) -> Option<FileLock> {
    FileLock::try_shared(File::open(path).ok()?).ok().flatten()
}

fn name_of(owner: &LeaseOwner) -> String {
    Digest::of_bytes(owner.as_str().as_bytes()).to_hex()
}

fn is_old(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|found| found.modified()).ok();
    let age = modified.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
    let now = Duration::from_millis(SystemClock.timestamp().millis());
    age.is_some_and(|date| now.saturating_sub(date) > REMEMBERED)
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::debug!(path = %path.display(), %error, "a process lock file was not removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lives_is_not_dead_and_who_ended_in_order_is_unknown() {
        let data = tempfile::tempdir().unwrap();
        let [one, other, nobody] = ["one", "other", "nobody"].map(|name| LeaseOwner::new(name).unwrap());
        let (first, dead) = ProcessLock::acquire(data.path(), &one).unwrap();
        let (second, found) = ProcessLock::acquire(data.path(), &other).unwrap();
        assert_eq!((dead.count(), found.count()), (0, 0));
        assert!(!second.is_dead(&one) && !first.is_dead(&other) && !first.is_dead(&nobody));
        second.release();
        drop(second);
        assert!(!first.is_dead(&other));
        let (second, _) = ProcessLock::acquire(data.path(), &other).unwrap();
        assert!(!first.is_dead(&other));
        // The process ends before everything was stopped.
        drop(second);
        assert!(first.is_dead(&other));
        let [third, fourth] = ["third", "fourth"].map(|name| LeaseOwner::new(name).unwrap());
        let (third, found) = ProcessLock::acquire(data.path(), &third).unwrap();
        assert_eq!(found.count(), 1);
        assert!(third.is_dead(&other) && !third.is_dead(&one));
        // Every process that starts finds it until somebody has swept.
        let (fourth, again) = ProcessLock::acquire(data.path(), &fourth).unwrap();
        assert_eq!(again.count(), 1);
        third.mark_swept(&found).unwrap();
        fourth.mark_swept(&again).unwrap();
        assert!(third.is_dead(&other));
        // A new process under the same name is alive, and is not marked as swept for the one before.
        let (_again, found) = ProcessLock::acquire(data.path(), &other).unwrap();
        assert_eq!(found.count(), 0);
        third.mark_swept(&again).unwrap();
        assert!(!third.is_dead(&other));
        let (_, found) = ProcessLock::acquire(data.path(), &LeaseOwner::new("fifth").unwrap()).unwrap();
        assert_eq!(found.count(), 0);
    }

    #[test]
    fn processes_that_begin_at_once_take_nothing_from_each_other() {
        let data = tempfile::tempdir().unwrap();
        let begin = |place: u32| {
            for round in 0..50 {
                let owner = LeaseOwner::new(format!("host-{place}-{round}")).unwrap();
                ProcessLock::acquire(data.path(), &owner).unwrap().0.release();
            }
        };
        std::thread::scope(|scope| {
            for place in 0..6 {
                scope.spawn(move || begin(place));
            }
        });
    }
}
