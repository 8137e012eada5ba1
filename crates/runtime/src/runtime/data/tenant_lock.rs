//! The lock of one tenant: shared for opening and deleting sessions, exclusive for removing content that no session
//! has.
//!
//! Within a runtime a task waits without a thread, so that no waiter blocks the one that it waits for. Between
//! runtimes, of this process or others, the kernel's lock on a file decides; it is only ever tried. State: that lock.
//! A crash releases it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::runtime::error::RuntimeError;
use crate::runtime::task_set::run_blocking;

/// How soon a lock of another runtime is tried again. The pause doubles up to `LATER`.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(50);

/// How long a lock may seem to be held by nobody: a child process that this one is starting has all open files until
/// it runs its program.
const STARTING: Duration = Duration::from_secs(1);

/// The lock of a tenant.
#[derive(Debug)]
pub(crate) struct TenantLock {
    path: PathBuf,
    turns: Arc<RwLock<()>>,
}

/// The shared lock: the content of the session is not removed meanwhile.
#[derive(Debug)]
pub(crate) struct SharedGuard {
    _lock: File,
    _turn: OwnedRwLockReadGuard<()>,
}

/// The exclusive lock: nobody opens or deletes a session meanwhile.
#[derive(Debug)]
pub(crate) struct ExclusiveGuard {
    _lock: File,
    _turn: OwnedRwLockWriteGuard<()>,
}

impl TenantLock {
    /// The lock with this file.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), turns: Arc::default() }
    }

    /// Waits for the shared lock.
    pub(crate) async fn shared(&self, deadline: Deadline) -> Result<SharedGuard, RuntimeError> {
        let waiting = Arc::clone(&self.turns).read_owned();
        let turn = self.with_deadline(deadline, waiting).await?;
        let mut pause = SOON;
        loop {
            if let Some(lock) = self.locked(File::try_lock_shared).await? {
                return Ok(SharedGuard { _lock: lock, _turn: turn });
            }
            self.wait(&mut pause, deadline).await?;
        }
    }

    /// Waits for the exclusive lock. Returns `None` if another runtime holds the shared lock for longer than
    /// `STARTING`.
    pub(crate) async fn exclusive(&self, deadline: Deadline) -> Result<Option<ExclusiveGuard>, RuntimeError> {
        let (mut pause, mut tried_since) = (SOON, None);
        loop {
            let waiting = Arc::clone(&self.turns).write_owned();
            let turn = self.with_deadline(deadline, waiting).await?;
            if let Some(lock) = self.locked(File::try_lock).await? {
                return Ok(Some(ExclusiveGuard { _lock: lock, _turn: turn }));
            }
            let until = *tried_since.get_or_insert_with(|| SystemClock.deadline(STARTING).min(deadline));
            if SystemClock.remaining(until).is_zero() {
                return Ok(None);
            }
            // Others must not wait for a lock that this one cannot get.
            drop(turn);
            self.wait(&mut pause, until).await?;
        }
    }

    /// Tries to lock the file exclusively, before anybody in this runtime uses it. Returns `None` if another runtime
    /// has it. Blocks briefly.
    pub(crate) fn try_exclusive(&self) -> Result<Option<File>, RuntimeError> {
        try_lock(&self.path, File::try_lock)
    }

    async fn locked(
        &self,
        lock: fn(&File) -> Result<(), TryLockError>,
    ) -> Result<Option<File>, RuntimeError> {
        let path = self.path.clone();
        run_blocking("locking a tenant's folder", move || try_lock(&path, lock)).await
    }

    async fn with_deadline<T>(
        &self,
        deadline: Deadline,
        wait: impl Future<Output = T>,
    ) -> Result<T, RuntimeError> {
        tokio::select! {
            biased;
            turn = wait => Ok(turn),
            () = SystemClock.sleep_until(deadline) => Err(self.busy()),
        }
    }

    async fn wait(&self, pause: &mut Duration, deadline: Deadline) -> Result<(), RuntimeError> {
        if SystemClock.remaining(deadline).is_zero() {
            return Err(self.busy());
        }
        SystemClock.sleep_until(SystemClock.deadline(*pause).min(deadline)).await;
        *pause = pause.saturating_mul(2).min(LATER);
        Ok(())
    }

    pub(crate) fn busy(&self) -> RuntimeError {
        RuntimeError::DataDirBusy { path: self.path.clone() }
    }
}

fn try_lock(path: &Path, lock: fn(&File) -> Result<(), TryLockError>) -> Result<Option<File>, RuntimeError> {
    let unusable = |error: io::Error| RuntimeError::data(path, &error);
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(unusable)?;
    match lock(&file) {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(unusable(error)),
    }
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
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tenant.lock");
        let (gate, other) = (TenantLock::new(&path), TenantLock::new(&path));
        // As a process that is being started holds it.
        let inherited = other.shared(soon()).await.unwrap();
        let let_go = async {
            pause(500).await;
            drop(inherited);
        };
        let (alone, ()) = join(gate.exclusive(soon()), let_go).await;
        assert!(alone.unwrap().is_some());
        let opening = other.shared(soon()).await.unwrap();
        let passing = async {
            pause(500).await;
            // Nobody in this runtime waits for a task that cannot get the lock.
            gate.shared(SystemClock.deadline(Duration::from_millis(100))).await.unwrap();
        };
        let (alone, ()) = join(gate.exclusive(soon()), passing).await;
        assert!(alone.unwrap().is_none());
        drop(opening);
        assert!(gate.exclusive(soon()).await.unwrap().is_some());
    }
}
