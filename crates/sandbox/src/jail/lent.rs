//! Folders that are handed over to a sandbox's user, and nobody else's for as long.
//!
//! A folder of the host's that belongs to a sandbox's user is one that a crashed host left, or one that a sandbox has just
//! now; these locks tell. State: a lock of the kernel's on each folder, which ends with the process that holds it, however
//! that ends.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_process::absent;

/// How long the end of a sandbox is waited for that has one of them: it may be under way.
const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(20);

/// Folders that nobody else hands over, nor takes back, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    folders: Vec<File>,
}

impl Lent {
    /// Waits for these folders, by the host's paths, but not for a sandbox that goes on.
    ///
    /// # Errors
    /// `Unavailable` when another sandbox has one of them.
    pub(crate) async fn take<'a>(folders: impl IntoIterator<Item = &'a str>) -> Result<Self, SandboxError> {
        Self::take_within(PATIENCE, &folders.into_iter().collect()).await
    }

    async fn take_within(patience: Duration, folders: &BTreeSet<&str>) -> Result<Self, SandboxError> {
        let deadline = SystemClock.deadline(patience);
        let mut lent = Self::default();
        for folder in folders {
            let path = Path::new(folder);
            let opened = File::open(path).map_err(|error| absent("folder", path, &error))?;
            loop {
                match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => break,
                    Err(Errno::WOULDBLOCK) if SystemClock.remaining(deadline).is_zero() => {
                        return Err(taken(folder));
                    }
                    Err(Errno::WOULDBLOCK) => {
                        SystemClock.sleep_until(SystemClock.deadline(STEP)).await;
                    }
                    // Some file systems have no locks.
                    Err(error) => {
                        tracing::debug!(%error, folder, "a folder that is handed over cannot be locked");
                        break;
                    }
                }
            }
            lent.folders.push(opened);
        }
        Ok(lent)
    }
}

impl Drop for Lent {
    /// Not only by closing: a process that is just being started has the file for a moment, too.
    fn drop(&mut self) {
        for folder in &self.folders {
            let _ = flock(folder, FlockOperation::Unlock);
        }
    }
}

fn taken(folder: &str) -> SandboxError {
    let message = format!(
        "the folder `{folder}` belongs to the user of another sandbox that runs: wait until that has ended, or give the folder to \
         a user other than root, as whom several sandboxes can run at once"
    );
    SandboxError::new(SandboxErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_folder_is_lent_to_one_at_a_time() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, other) = (one.path().to_str().unwrap(), other.path().to_str().unwrap());
        let take = async |folders: &[&str]| {
            Lent::take_within(Duration::ZERO, &folders.iter().copied().collect()).await
        };
        // The same one twice is once.
        let first = take(&[one, one]).await.unwrap();
        let refused = take(&[other, one]).await.unwrap_err();
        assert!(refused.is_retryable() && refused.to_string().contains(one), "{refused}");
        let second = take(&[other]).await.unwrap();
        drop(first);
        drop(second);
        drop(take(&[other, one]).await.unwrap());
        assert!(take(&["/no/such/folder"]).await.is_err());
    }

    #[tokio::test]
    async fn an_end_that_is_under_way_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let first = Lent::take([path]).await.unwrap();
        let (second, ()) = tokio::join!(Lent::take([path]), async { drop(first) });
        second.unwrap();
    }
}
