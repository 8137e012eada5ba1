//! The lock of one tenant. It is shared for opening and deleting sessions. It is exclusive for removing content that no
//! session has.
//!
//! Within a runtime, a waiting task occupies no thread, so it cannot block the task that it waits for. Between
//! runtimes, of this process or others, the kernel's lock on a file decides. Tasks only try to get that lock, and never
//! block on it.
//!
//! State: the file's lock. A crash releases it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock, with_deadline};
use conjure_fs::{FileLock, LockWait};
use rustix::io::Errno;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::runtime::error::RuntimeError;
use crate::runtime::task_set::run_blocking;

/// How long the lock may stay held without an owner. A child process that is being started has all open files,
/// including the lock, until it runs its program.
const CHILD_START_TIMEOUT: Duration = Duration::from_secs(1);

/// The lock of a tenant.
#[derive(Debug)]
pub(crate) struct TenantLock {
    path: PathBuf,
    in_process_lock: Arc<RwLock<()>>,
}

/// The shared lock. While it is held, no content of the session is removed.
#[derive(Debug)]
pub(crate) struct SharedGuard {
    _lock: FileLock,
    _turn: OwnedRwLockReadGuard<()>,
}

/// The exclusive lock. While it is held, no session of the tenant is opened or deleted.
#[derive(Debug)]
pub(crate) struct ExclusiveGuard {
    _lock: FileLock,
    _turn: OwnedRwLockWriteGuard<()>,
}

impl TenantLock {
    /// The lock with this file.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), in_process_lock: Arc::default() }
    }

    /// Waits for the shared lock.
    pub(crate) async fn shared(&self, deadline: Deadline) -> Result<SharedGuard, RuntimeError> {
        let turn = self.wait_for_turn(deadline, Arc::clone(&self.in_process_lock).read_owned()).await?;
        let mut wait = LockWait::new(deadline);
        loop {
            if let Some(lock) = self.locked(FileLock::try_shared).await? {
                return Ok(SharedGuard { _lock: lock, _turn: turn });
            }
            if !wait.next().await {
                return Err(self.busy());
            }
        }
    }

    /// Waits for the exclusive lock. Returns `None` if another runtime holds the shared lock for longer than
    /// `CHILD_START_TIMEOUT`.
    pub(crate) async fn exclusive(&self, deadline: Deadline) -> Result<Option<ExclusiveGuard>, RuntimeError> {
        let mut wait = None;
        loop {
            let turn = self.wait_for_turn(deadline, Arc::clone(&self.in_process_lock).write_owned()).await?;
            if let Some(lock) = self.locked(FileLock::try_exclusive).await? {
                return Ok(Some(ExclusiveGuard { _lock: lock, _turn: turn }));
            }
            // Other tasks must not wait for a lock that this task cannot get.
            drop(turn);
            let until = || SystemClock.deadline(CHILD_START_TIMEOUT).min(deadline);
            if !wait.get_or_insert_with(|| LockWait::new(until())).next().await {
                return Ok(None);
            }
        }
    }

    /// Tries to lock the file exclusively, before a task of this runtime uses it. Returns `None` if another runtime
    /// holds the lock. Blocks briefly.
    pub(crate) fn try_exclusive(&self) -> Result<Option<FileLock>, RuntimeError> {
        try_lock(&self.path, FileLock::try_exclusive)
    }

    async fn locked(&self, lock: TryLock) -> Result<Option<FileLock>, RuntimeError> {
        let path = self.path.clone();
        run_blocking("locking a tenant's directory", move || try_lock(&path, lock)).await
    }

    async fn wait_for_turn<T>(
        &self,
        deadline: Deadline,
        turn: impl Future<Output = T>,
    ) -> Result<T, RuntimeError> {
        with_deadline(&SystemClock, deadline, turn).await.map_err(|_| self.busy())
    }

    pub(crate) fn busy(&self) -> RuntimeError {
        RuntimeError::DataDirBusy { path: self.path.clone() }
    }
}

/// [`FileLock::try_shared`] or [`FileLock::try_exclusive`].
type TryLock = fn(OwnedFd) -> Result<Option<FileLock>, Errno>;

fn try_lock(path: &Path, lock: TryLock) -> Result<Option<FileLock>, RuntimeError> {
    let locked = FileLock::open(path).and_then(lock);
    locked.map_err(|errno| RuntimeError::data(path, &std::io::Error::from(errno)))
}

#[cfg(test)]
mod tests {
    use futures_util::future::join;

    use super::*;

    fn soon() -> Deadline {
        SystemClock.deadline(Duration::from_secs(60))
    }

    async fn pause(millis: u64) {
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(millis))).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_let_go_of_soon_is_waited_for_and_another_runtime_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenant.lock");
        let (tenant_lock, other) = (TenantLock::new(&path), TenantLock::new(&path));
        // As a process that is being started holds it.
        let inherited = other.shared(soon()).await.unwrap();
        let let_go = async {
            pause(500).await;
            drop(inherited);
        };
        let (exclusive_guard, ()) = join(tenant_lock.exclusive(soon()), let_go).await;
        assert!(exclusive_guard.unwrap().is_some());
        let opening = other.shared(soon()).await.unwrap();
        let passing = async {
            pause(500).await;
            // Nobody in this runtime waits for a task that cannot get the lock.
            tenant_lock.shared(SystemClock.deadline(Duration::from_millis(100))).await.unwrap();
        };
        let (exclusive_guard, ()) = join(tenant_lock.exclusive(soon()), passing).await;
        assert!(exclusive_guard.unwrap().is_none());
        drop(opening);
        assert!(tenant_lock.exclusive(soon()).await.unwrap().is_some());
    }
}
