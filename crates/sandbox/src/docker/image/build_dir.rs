//! The directory and the number of a build, and its cleanup.
//!
//! State: the directory, while any part of the build runs. Threads clean up, so the cleanup also runs if the build's
//! future is dropped or its Tokio runtime has ended. A caller that can wait should call [`BuildDir::wait_cleanup`].

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use conjure_base::{Clock as _, Digest, SystemClock, lock};
use tempfile::TempDir;

use super::error::ImageError;

/// The directory of one build.
#[derive(Debug)]
pub(super) struct BuildDir {
    dir: TempDir,
    number: String,
    cleanup_threads: Mutex<Vec<JoinHandle<()>>>,
}

impl BuildDir {
    /// Creates it in the given directory, or in the system's temporary directory.
    pub(super) fn make(within: Option<&Path>) -> Result<Arc<Self>, ImageError> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("conjure-image-");
        let dir = within.map_or_else(|| builder.tempdir(), |dir| builder.tempdir_in(dir));
        let dir = dir.map_err(|error| ImageError::io("make a temporary directory", &error))?;
        // If `mmdebstrap` does not run as root, its programs use the directory as another user.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))
            .map_err(|error| ImageError::io("open the temporary directory to programs", &error))?;
        let unique = format!("{} {} {:?}", dir.path().display(), std::process::id(), SystemClock.timestamp());
        let mut number = Digest::of_bytes(unique.as_bytes()).to_hex();
        number.truncate(24);
        Ok(Arc::new(Self { dir, number, cleanup_threads: Mutex::default() }))
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The unique number of the build.
    pub(super) fn number(&self) -> &str {
        &self.number
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), ImageError> {
        std::fs::write(self.path().join(name), text)
            .map_err(|error| ImageError::io("write to the temporary directory", &error))
    }

    /// Runs cleanup work on a thread. The directory stays until the work has ended.
    pub(super) fn spawn_cleanup(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) {
        let build_dir = Arc::clone(self);
        let thread = std::thread::Builder::new().name("image-cleanup".to_owned()).spawn(move || {
            work();
            drop(build_dir);
        });
        match thread {
            Ok(thread) => lock(&self.cleanup_threads).push(thread),
            Err(error) => tracing::warn!(%error, "processes of an image build may be left"),
        }
    }

    /// Waits until all started cleanup work has ended.
    pub(super) async fn wait_cleanup(&self) {
        let threads = std::mem::take(&mut *lock(&self.cleanup_threads));
        let joined =
            tokio::task::spawn_blocking(|| threads.into_iter().for_each(|thread| drop(thread.join())));
        let _ = joined.await;
    }
}
