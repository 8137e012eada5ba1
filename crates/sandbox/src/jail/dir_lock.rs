//! [`OwnershipLock`]: locks directories whose owner is changed to the user of one sandbox.
//!
//! If a host directory belongs to a sandbox's user, either a crash left it so, or a running sandbox uses it. These
//! locks distinguish the two cases. State: a kernel lock on each directory, which ends with its process.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};
use conjure_fs::{FileLock, LockWait};

use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_process::missing_dir;

/// How long to wait for the end of another sandbox that uses one of the directories.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Locked directories. No other sandbox changes their owner until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct OwnershipLock {
    _locks: Vec<FileLock>,
}

impl OwnershipLock {
    /// Locks these directories, by their paths on the host. Waits for a sandbox that is ending, but not for one that
    /// keeps running.
    ///
    /// # Errors
    /// `Unavailable` when another sandbox has one of them.
    pub(crate) async fn lock<'a>(dirs: impl IntoIterator<Item = &'a str>) -> Result<Self, SandboxError> {
        Self::lock_with_timeout(LOCK_TIMEOUT, &dirs.into_iter().collect()).await
    }

    async fn lock_with_timeout(timeout: Duration, dirs: &BTreeSet<&str>) -> Result<Self, SandboxError> {
        let mut wait = LockWait::new(SystemClock.deadline(timeout));
        let mut locks = Vec::new();
        for dir in dirs {
            let path = Path::new(dir);
            loop {
                let opened = File::open(path).map_err(|error| missing_dir("directory", path, &error))?;
                match FileLock::try_exclusive(opened) {
                    Ok(Some(lock)) => break locks.push(lock),
                    Ok(None) if wait.next().await => {}
                    Ok(None) => return Err(locked_by_other(dir)),
                    // Some file systems do not support locks.
                    Err(error) => {
                        tracing::debug!(%error, dir, "a directory whose owner changes cannot be locked");
                        break;
                    }
                }
            }
        }
        Ok(Self { _locks: locks })
    }
}

fn locked_by_other(dir: &str) -> SandboxError {
    let message = format!(
        "the directory `{dir}` belongs to the user of another sandbox that runs: wait until that has ended, or give the directory to \
         a user other than root, as whom several sandboxes can run at once"
    );
    SandboxError::new(SandboxErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_is_lent_to_one_at_a_time() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, other) = (one.path().to_str().unwrap(), other.path().to_str().unwrap());
        let lock = async |dirs: &[&str]| {
            OwnershipLock::lock_with_timeout(Duration::ZERO, &dirs.iter().copied().collect()).await
        };
        // The same one twice is once.
        let first = lock(&[one, one]).await.unwrap();
        let refused = lock(&[other, one]).await.unwrap_err();
        assert!(refused.is_retryable() && refused.to_string().contains(one), "{refused}");
        let second = lock(&[other]).await.unwrap();
        drop(first);
        drop(second);
        drop(lock(&[other, one]).await.unwrap());
        assert!(lock(&["/no/such/directory"]).await.is_err());
    }

    #[tokio::test]
    async fn an_end_that_is_under_way_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let first = OwnershipLock::lock([path]).await.unwrap();
        let (second, ()) = tokio::join!(OwnershipLock::lock([path]), async { drop(first) });
        second.unwrap();
    }
}
