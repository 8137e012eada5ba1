//! Events of the file system, for all catalogs: which folders are watched for whom, and who is told of what.
//!
//! One `inotify` for each incarnation of the actor; nothing of it is left after that.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::key::CatalogKey;
use super::places::{Matters, Places};

/// How much is read at once: some hundred events.
const READ: usize = 16 * 1024;

/// Watches folders.
pub(crate) struct Watcher {
    events: AsyncFd<OwnedFd>,
    /// How many folders may be watched.
    most: usize,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    /// For whom a folder is watched, by the number of its watch.
    folders: HashMap<i32, BTreeMap<CatalogKey, Matters>>,
}

/// What came of watching a catalog's folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// All were watched already.
    AsBefore,
    /// Some were not: what changed in them before is not known.
    Wider,
    /// Some cannot be watched.
    Partial,
}

/// Whose files may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Changed {
    Of(BTreeSet<CatalogKey>),
    /// Events were lost.
    All,
}

impl Watcher {
    /// One that watches nothing yet. Must be made within a Tokio runtime.
    #[expect(
        deprecated,
        reason = "what is unsound with others is not with an `OwnedFd`, and the way around is unsafe"
    )]
    pub(crate) fn new(most: usize) -> std::io::Result<Self> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { events: AsyncFd::new(events)?, most, watched: Mutex::default() })
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches these folders for a catalog, and no others. One that is not there need not be: what is above it is among
    /// them. Blocks.
    pub(crate) fn watch(&self, key: &CatalogKey, places: Places) -> Coverage {
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
        let (mut kept, mut coverage) = (BTreeMap::new(), Coverage::AsBefore);
        for (path, matters) in places {
            if watched.folders.len() >= self.most {
                coverage = Coverage::Partial;
                break;
            }
            match inotify::add_watch(&self.events, &path, flags) {
                // One folder may be reached by two paths.
                Ok(number) => {
                    let of_all = watched.folders.entry(number).or_default();
                    if of_all.get(key).is_none_or(|before| !before.covers(&matters))
                        && coverage == Coverage::AsBefore
                    {
                        coverage = Coverage::Wider;
                    }
                    of_all.insert(key.clone(), matters.clone());
                    kept.entry(number).and_modify(|all: &mut Matters| all.join(&matters)).or_insert(matters);
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => {}
                Err(error) => {
                    tracing::debug!(path = %path.display(), %error, "a folder of skills cannot be watched");
                    coverage = Coverage::Partial;
                    if error == Errno::NOSPC || error == Errno::NOMEM {
                        break;
                    }
                }
            }
        }
        watched.settle(&self.events, key, &kept);
        coverage
    }

    /// Watches nothing for a catalog any more.
    pub(crate) fn forget(&self, key: &CatalogKey) {
        self.watched().settle(&self.events, key, &BTreeMap::new());
    }

    /// Waits for events, and says of whose files.
    pub(crate) async fn changed(&self) -> std::io::Result<Changed> {
        loop {
            let mut ready = self.events.readable().await?;
            let mut buffer = [MaybeUninit::uninit(); READ];
            let changed = self.read(&mut buffer)?;
            ready.clear_ready();
            match changed {
                Changed::Of(keys) if keys.is_empty() => {}
                changed => return Ok(changed),
            }
        }
    }

    /// All events that are there.
    fn read(&self, buffer: &mut [MaybeUninit<u8>]) -> std::io::Result<Changed> {
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
            let of_all = watched.folders.get(&number).into_iter().flatten();
            keys.extend(
                of_all.filter(|(_, matters)| matters.has(name.as_deref())).map(|(key, _)| key.clone()),
            );
            if flags.contains(ReadFlags::IGNORED) {
                // The folder is gone; the number may be used again.
                watched.folders.remove(&number);
            }
        }
        Ok(if is_lossy { Changed::All } else { Changed::Of(keys) })
    }
}

impl Watched {
    /// Keeps of a catalog's folders these, and watches no more what is nobody's.
    fn settle(&mut self, events: &AsyncFd<OwnedFd>, key: &CatalogKey, kept: &BTreeMap<i32, Matters>) {
        self.folders.retain(|number, of_all| {
            match kept.get(number) {
                Some(matters) => drop(of_all.insert(key.clone(), matters.clone())),
                None => drop(of_all.remove(key)),
            }
            if of_all.is_empty() {
                // It may be gone already.
                let _ = inotify::remove_watch(events, *number);
            }
            !of_all.is_empty()
        });
    }
}

impl Matters {
    /// Whether something of this name matters; `None`: the folder itself.
    fn has(&self, name: Option<&OsStr>) -> bool {
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

impl Changed {
    /// Both.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Of(mut keys), Self::Of(others)) => {
                keys.extend(others);
                Self::Of(keys)
            }
            _ => Self::All,
        }
    }
}
