//! File system events for all catalogs. It records which directory is watched for which catalog.
//!
//! Each incarnation of the registry's actor has one `inotify` instance, which ends with it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Mutex, MutexGuard};

use conjure_base::lock;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::catalog_key::CatalogKey;
use super::watch_paths::{WatchInterest, WatchPaths};

/// The size of the read buffer: some hundred events.
const READ_BUFFER: usize = 16 * 1024;

/// Watches directories.
pub(crate) struct Watcher {
    events: AsyncFd<OwnedFd>,
    /// How many directories may be watched.
    max_watches: usize,
    watched: Mutex<WatchTable>,
}

#[derive(Default)]
struct WatchTable {
    /// The catalogs for which a directory is watched, by the watch descriptor of the directory.
    directories: HashMap<i32, BTreeMap<CatalogKey, WatchInterest>>,
}

/// The result of watching a catalog's directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CoverageChange {
    /// All directories were watched already.
    Same,
    /// Some were not watched before. Changes in them may have been missed.
    Grown,
    /// Some cannot be watched.
    Partial,
}

/// The catalogs whose files may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangedCatalogs {
    Some(BTreeSet<CatalogKey>),
    /// All of them, because events were lost.
    All,
}

impl Watcher {
    /// A watcher that watches nothing yet. It must be created within a Tokio runtime.
    #[expect(
        deprecated,
        reason = "`AsyncFd::new` is unsound only for types without I/O safety; the replacement is unsafe"
    )]
    pub(crate) fn new(max_watches: usize) -> std::io::Result<Self> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { events: AsyncFd::new(events)?, max_watches, watched: Mutex::default() })
    }

    fn watched(&self) -> MutexGuard<'_, WatchTable> {
        lock(&self.watched)
    }

    /// Watches exactly these directories for a catalog. Missing ones are skipped, because the directories above them
    /// are watched as well. Blocks.
    pub(crate) fn set_watches(&self, key: &CatalogKey, watch_paths: WatchPaths) -> CoverageChange {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let mut watched = self.watched();
        let (mut kept, mut coverage) = (BTreeMap::new(), CoverageChange::Same);
        for (path, interest) in watch_paths {
            if watched.directories.len() >= self.max_watches {
                coverage = CoverageChange::Partial;
                break;
            }
            match inotify::add_watch(&self.events, &path, flags) {
                // Two paths may lead to one directory.
                Ok(number) => {
                    let interests = watched.directories.entry(number).or_default();
                    if interests.get(key).is_none_or(|before| !before.covers(&interest))
                        && coverage == CoverageChange::Same
                    {
                        coverage = CoverageChange::Grown;
                    }
                    interests.insert(key.clone(), interest.clone());
                    kept.entry(number)
                        .and_modify(|all: &mut WatchInterest| all.join(&interest))
                        .or_insert(interest);
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => {}
                Err(error) => {
                    tracing::debug!(path = %path.display(), %error, "a directory of skills cannot be watched");
                    coverage = CoverageChange::Partial;
                    if error == Errno::NOSPC || error == Errno::NOMEM {
                        break;
                    }
                }
            }
        }
        watched.update(&self.events, key, &kept);
        coverage
    }

    /// Stops watching for a catalog.
    pub(crate) fn remove(&self, key: &CatalogKey) {
        self.watched().update(&self.events, key, &BTreeMap::new());
    }

    /// Waits for events, and returns the catalogs whose files may have changed.
    pub(crate) async fn changed(&self) -> std::io::Result<ChangedCatalogs> {
        loop {
            let mut ready = self.events.readable().await?;
            let mut buffer = [MaybeUninit::uninit(); READ_BUFFER];
            let changed = self.read(&mut buffer)?;
            ready.clear_ready();
            match changed {
                ChangedCatalogs::Some(keys) if keys.is_empty() => {}
                changed => return Ok(changed),
            }
        }
    }

    /// Reads all available events.
    fn read(&self, buffer: &mut [MaybeUninit<u8>]) -> std::io::Result<ChangedCatalogs> {
        let mut reader = inotify::Reader::new(&self.events, buffer);
        let mut watched = self.watched();
        let mut keys = BTreeSet::new();
        let mut is_lossy = false;
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let (flags, number) = (event.events(), event.wd());
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                is_lossy = true;
                continue;
            }
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
            let interests = watched.directories.get(&number).into_iter().flatten();
            keys.extend(
                interests
                    .filter(|(_, interest)| interest.matches(name.as_deref()))
                    .map(|(key, _)| key.clone()),
            );
            if flags.contains(ReadFlags::IGNORED) {
                // The directory is gone, and its watch descriptor may be used again.
                watched.directories.remove(&number);
            }
        }
        Ok(if is_lossy { ChangedCatalogs::All } else { ChangedCatalogs::Some(keys) })
    }
}

impl WatchTable {
    /// Keeps only these watches of a catalog, and removes watches that no catalog needs.
    fn update(&mut self, events: &AsyncFd<OwnedFd>, key: &CatalogKey, kept: &BTreeMap<i32, WatchInterest>) {
        self.directories.retain(|number, interests| {
            match kept.get(number) {
                Some(interest) => drop(interests.insert(key.clone(), interest.clone())),
                None => drop(interests.remove(key)),
            }
            if interests.is_empty() {
                // The kernel may have removed the watch already.
                let _ = inotify::remove_watch(events, *number);
            }
            !interests.is_empty()
        });
    }
}

impl WatchInterest {
    /// Whether a change of the entry with this name matters. `None` stands for the directory itself.
    fn matches(&self, name: Option<&OsStr>) -> bool {
        match (self, name) {
            (Self::Everything, _) | (Self::Names(_), None) => true,
            (Self::Names(names), Some(name)) => names.contains(name),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Everything, _) => true,
            (Self::Names(_), Self::Everything) => false,
            (Self::Names(mine), Self::Names(others)) => others.is_subset(mine),
        }
    }

    fn join(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Everything, _) => {}
            (_, Self::Everything) => *self = Self::Everything,
            (Self::Names(mine), Self::Names(others)) => mine.extend(others.iter().cloned()),
        }
    }
}

impl ChangedCatalogs {
    /// The union of both sets.
    pub(crate) fn union(self, other: Self) -> Self {
        match (self, other) {
            (Self::Some(mut keys), Self::Some(others)) => {
                keys.extend(others);
                Self::Some(keys)
            }
            _ => Self::All,
        }
    }
}
