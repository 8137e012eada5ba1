//! Stores for tests, and clocks that do not move.

use std::fs;
use std::future::Future;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock, Timestamp};
use conjure_store::{Durability, Store, StoreOptions, Tree};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use tempfile::TempDir;

/// A clock that does not move.
#[derive(Debug)]
pub(crate) struct FixedClock(pub(crate) Timestamp);

impl Clock for FixedClock {
    fn timestamp(&self) -> Timestamp {
        self.0
    }

    fn deadline(&self, after: Duration) -> Deadline {
        SystemClock.deadline(after)
    }

    fn remaining(&self, deadline: Deadline) -> Duration {
        SystemClock.remaining(deadline)
    }

    fn sleep_until(&self, deadline: Deadline) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        SystemClock.sleep_until(deadline)
    }
}

/// A store without durability, and a directory beside it.
pub(crate) struct StoreFixture {
    pub(crate) dir: TempDir,
    pub(crate) store: Store,
}

impl StoreFixture {
    pub(crate) fn new() -> Self {
        Self::with(StoreOptions { durability: Durability::Process, ..StoreOptions::default() })
    }

    pub(crate) fn with(options: StoreOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_with(&dir.path().join("store"), options).unwrap();
        Self { dir, store }
    }

    /// A fixture whose store has a clock that does not move.
    pub(crate) fn at(moment: Timestamp) -> Self {
        Self::with(StoreOptions { durability: Durability::Process, clock: Arc::new(FixedClock(moment)) })
    }

    /// A fixture whose store caches digests at once: its clock is an hour ahead, so no change of a file is recent.
    pub(crate) fn ahead() -> Self {
        Self::at(Timestamp::from_millis(SystemClock.timestamp().millis() + 3_600_000))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A new file beside the store.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// A new directory beside the store, open.
    pub(crate) fn dir(&self, name: &str) -> (PathBuf, OwnedFd) {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        (path.clone(), open(&path))
    }

    /// Asserts that the store has no temporary file.
    pub(crate) fn assert_tidy(&self) {
        assert_eq!(self.store.usage().unwrap().temporary, 0);
    }
}

/// Waits until files that change now get a later time than this file.
pub(crate) fn age_file(fixture: &StoreFixture, path: &Path) {
    let changed = |path: &Path| {
        let file = fs::metadata(path).unwrap();
        u64::try_from(file.ctime() * 1_000 + file.ctime_nsec() / 1_000_000).unwrap()
    };
    let then = changed(path);
    while changed(&fixture.file("now", b"")) < then + 2 {
        std::thread::yield_now();
    }
}

pub(crate) fn open(dir: &Path) -> OwnedFd {
    rustix::fs::openat(CWD, dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn paths(tree: &Tree) -> Vec<&str> {
    tree.files().iter().map(|file| file.path().to_str().unwrap()).collect()
}
