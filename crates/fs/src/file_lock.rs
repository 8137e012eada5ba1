//! [`FileLock`]: a kernel lock on a file or directory, which ends with its process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use conjure_base::{Backoff, Clock as _, Deadline, SystemClock};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

/// The waits before a lock of another process is tried again. The wait doubles, from the first value up to the
/// second.
const RETRY: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(50));

/// The file that marks a temporary directory as in use, as long as it is locked.
pub const TEMPORARY_DIR_LOCK: &str = "data-dir.lock";

/// A held lock. It is released when it is dropped, and when its process ends.
///
/// Each opening of a file has a lock of its own, so two locks exclude each other also within one process.
#[derive(Debug)]
pub struct FileLock(OwnedFd);

impl FileLock {
    /// Opens a lock file, and creates it if it is missing, for its owner only. A link at the end of the path is not
    /// followed.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: &Path) -> Result<OwnedFd, Errno> {
        Self::open_at(CWD, path)
    }

    /// Marks a temporary directory as used by this process, with a locked file [`TEMPORARY_DIR_LOCK`]. The file gets
    /// its name once it is locked, so a directory with an unlocked file belongs to a dead process.
    ///
    /// # Errors
    /// Those of the system.
    pub fn mark_temporary_dir(dir: &Path) -> std::io::Result<Self> {
        let staging = dir.join("data-dir.new");
        let lock = Self::try_exclusive(Self::open(&staging)?)?.ok_or(std::io::ErrorKind::WouldBlock)?;
        std::fs::rename(&staging, dir.join(TEMPORARY_DIR_LOCK))?;
        Ok(lock)
    }

    /// Opens a lock file in an open directory, as [`FileLock::open`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn open_at(dir: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)
    }

    /// Locks an open file exclusively; `None` when another lock is held. Does not wait.
    ///
    /// # Errors
    /// Those of the system, as on file systems without locks.
    pub fn try_exclusive(file: impl Into<OwnedFd>) -> Result<Option<Self>, Errno> {
        Self::try_lock(file.into(), FlockOperation::NonBlockingLockExclusive)
    }

    /// Locks an open file with others that share it; `None` when an exclusive lock is held. Does not wait.
    ///
    /// # Errors
    /// As [`FileLock::try_exclusive`].
    pub fn try_shared(file: impl Into<OwnedFd>) -> Result<Option<Self>, Errno> {
        Self::try_lock(file.into(), FlockOperation::NonBlockingLockShared)
    }

    /// Locks an open file exclusively. Blocks the thread until the lock is free.
    ///
    /// # Errors
    /// As [`FileLock::try_exclusive`].
    pub fn exclusive(file: impl Into<OwnedFd>) -> Result<Self, Errno> {
        Self::lock(file.into(), FlockOperation::LockExclusive)
    }

    /// Locks an open file with others that share it. Blocks the thread until the lock is free.
    ///
    /// # Errors
    /// As [`FileLock::try_exclusive`].
    pub fn shared(file: impl Into<OwnedFd>) -> Result<Self, Errno> {
        Self::lock(file.into(), FlockOperation::LockShared)
    }

    fn try_lock(file: OwnedFd, operation: FlockOperation) -> Result<Option<Self>, Errno> {
        match Self::lock(file, operation) {
            Ok(lock) => Ok(Some(lock)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn lock(file: OwnedFd, operation: FlockOperation) -> Result<Self, Errno> {
        loop {
            match flock(&file, operation) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl AsFd for FileLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for FileLock {
    /// Closing the file is not enough: a child process that is just being started has the descriptor for a moment,
    /// too.
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// The waits between attempts to get a lock that another process holds. The kernel does not report when the lock is
/// released.
#[derive(Debug)]
pub struct LockWait {
    deadline: Deadline,
    attempts: u32,
}

impl LockWait {
    /// Creates a wait that ends at `deadline`, counted over all attempts.
    #[must_use]
    pub const fn new(deadline: Deadline) -> Self {
        Self { deadline, attempts: 0 }
    }

    /// Waits before the next attempt. Returns false, at once, when the deadline has passed. Cancel safe.
    pub async fn next(&mut self) -> bool {
        if SystemClock.remaining(self.deadline).is_zero() {
            return false;
        }
        let pause = RETRY.wait(self.attempts);
        self.attempts = self.attempts.saturating_add(1);
        SystemClock.sleep_until(SystemClock.deadline(pause).min(self.deadline)).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_excludes_others_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let open = || FileLock::open(&path).unwrap();
        let exclusive = FileLock::try_exclusive(open()).unwrap().unwrap();
        assert!(FileLock::try_exclusive(open()).unwrap().is_none());
        assert!(FileLock::try_shared(open()).unwrap().is_none());
        // A copy of the descriptor, as a child has it that is being started, does not keep the lock.
        let _copy = exclusive.as_fd().try_clone_to_owned().unwrap();
        drop(exclusive);
        let shared = FileLock::shared(open()).unwrap();
        let other = FileLock::try_shared(open()).unwrap();
        assert!(other.is_some() && FileLock::try_exclusive(open()).unwrap().is_none());
        drop((shared, other));
        drop(FileLock::exclusive(open()).unwrap());
        std::os::unix::fs::symlink(&path, dir.path().join("link")).unwrap();
        assert_eq!(FileLock::open(&dir.path().join("link")).unwrap_err(), Errno::LOOP);
    }

    #[tokio::test(start_paused = true)]
    async fn the_waits_for_a_lock_end_at_the_deadline() {
        let mut wait = LockWait::new(SystemClock.deadline(Duration::from_millis(200)));
        let mut attempts = 0;
        while wait.next().await {
            attempts += 1;
        }
        // 1 + 2 + 4 + 8 + 16 + 32 + 50 + 50 ms, and the rest.
        assert_eq!(attempts, 9);
    }
}
