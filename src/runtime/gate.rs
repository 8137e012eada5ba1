//! Who may change what sessions of a tenant have on the disk: many who open or delete sessions, or one who removes what no
//! session has.
//!
//! Within a runtime they take turns without a thread, so that nobody who waits is in the way of the one that is waited for;
//! between runtimes, of this process or others, the kernel's lock on a file decides, which is only ever tried. State: that
//! lock. A crash lets go of it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use super::error::RuntimeError;
use super::outfit::blocking;

/// How soon a lock that another runtime has is tried again; twice as long each time, up to the other.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(50);

/// How long a lock may be had by nobody who uses it: a process that this one is just starting has all that was open here, until it
/// runs its program.
const STARTING: Duration = Duration::from_secs(1);

/// The gate of a tenant.
#[derive(Debug)]
pub(crate) struct Gate {
    path: PathBuf,
    turns: Arc<RwLock<()>>,
}

/// The right to open or delete a session: what it has is not removed meanwhile.
#[derive(Debug)]
pub(crate) struct Pass {
    _lock: File,
    _turn: OwnedRwLockReadGuard<()>,
}

/// The right to remove what no session has: nobody opens or deletes one meanwhile.
#[derive(Debug)]
pub(crate) struct Alone {
    _lock: File,
    _turn: OwnedRwLockWriteGuard<()>,
}

impl Gate {
    /// The gate whose file lies there.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), turns: Arc::default() }
    }

    /// Waits for the right to open or delete.
    pub(crate) async fn pass(&self, deadline: Deadline) -> Result<Pass, RuntimeError> {
        let waiting = Arc::clone(&self.turns).read_owned();
        let turn = self.within(deadline, waiting).await?;
        let mut pause = SOON;
        loop {
            if let Some(lock) = self.locked(File::try_lock_shared).await? {
                return Ok(Pass { _lock: lock, _turn: turn });
            }
            self.wait(&mut pause, deadline).await?;
        }
    }

    /// Waits for the right to remove; `None` where another runtime opens or deletes sessions, for longer than a moment.
    pub(crate) async fn alone(&self, deadline: Deadline) -> Result<Option<Alone>, RuntimeError> {
        let (mut pause, mut tried_since) = (SOON, None);
        loop {
            let waiting = Arc::clone(&self.turns).write_owned();
            let turn = self.within(deadline, waiting).await?;
            if let Some(lock) = self.locked(File::try_lock).await? {
                return Ok(Some(Alone { _lock: lock, _turn: turn }));
            }
            let until = *tried_since.get_or_insert_with(|| SystemClock.deadline(STARTING).earlier(deadline));
            if SystemClock.remaining(until).is_zero() {
                return Ok(None);
            }
            // Nobody else waits for what this one cannot have.
            drop(turn);
            self.wait(&mut pause, until).await?;
        }
    }

    /// The lock alone, for who is the first of this runtime; `None` where another runtime opens or deletes sessions just now.
    /// Blocks for a moment.
    pub(crate) fn try_alone(&self) -> Result<Option<File>, RuntimeError> {
        try_lock(&self.path, File::try_lock)
    }

    async fn locked(
        &self,
        lock: fn(&File) -> Result<(), TryLockError>,
    ) -> Result<Option<File>, RuntimeError> {
        let path = self.path.clone();
        blocking("locking a tenant's folder", move || try_lock(&path, lock)).await
    }

    async fn within<T>(&self, deadline: Deadline, wait: impl Future<Output = T>) -> Result<T, RuntimeError> {
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
        SystemClock.sleep_until(SystemClock.deadline(*pause).earlier(deadline)).await;
        *pause = pause.saturating_mul(2).min(LATER);
        Ok(())
    }

    pub(crate) fn busy(&self) -> RuntimeError {
        RuntimeError::Busy { path: self.path.clone() }
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
        let path = folder.path().join("gate.lock");
        let (gate, other) = (Gate::at(&path), Gate::at(&path));
        // As a process has it that is being started.
        let inherited = other.pass(soon()).await.unwrap();
        let let_go = async {
            pause(500).await;
            drop(inherited);
        };
        let (alone, ()) = join(gate.alone(soon()), let_go).await;
        assert!(alone.unwrap().is_some());
        let opening = other.pass(soon()).await.unwrap();
        let passing = async {
            pause(500).await;
            // Nobody of this runtime waits for who cannot have it.
            gate.pass(SystemClock.deadline(Duration::from_millis(100))).await.unwrap();
        };
        let (alone, ()) = join(gate.alone(soon()), passing).await;
        assert!(alone.unwrap().is_none());
        drop(opening);
        assert!(gate.alone(soon()).await.unwrap().is_some());
    }
}
