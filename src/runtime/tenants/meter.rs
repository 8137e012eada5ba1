//! How much of the disk a tenant takes, in its data folder and in the journal: measured by a walk on a thread that may block, one at a
//! time for each tenant, and no more often than it changes anything.
//!
//! What was measured a moment ago is good enough to go on with, and is measured anew in the background; what would refuse
//! somebody is measured anew first. State: what was measured last, in memory.

use std::collections::{BTreeMap, HashSet};
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_actors::tenants::{Quota, QuotaExceeded, Tenancy};
use conjure_base::{Clock as _, Deadline, SystemClock, TenantId};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use tokio_util::task::TaskTracker;

use super::super::error::RuntimeError;
use super::super::home::Home;
use super::places::{Place, Places};
use super::policies::Policies;
use super::policy::TenantPolicy;
use super::room::{AsideGuard, Asides};

/// How long what was measured is good for without another look.
const FRESH: Duration = Duration::from_secs(2);

/// How long it is good enough to go on with.
const USABLE: Duration = Duration::from_secs(60);

/// No walk looks at more names.
const MOST_NAMES: u64 = 4_000_000;

/// No walk goes deeper: it has one folder open for each step down.
const DEEPEST: usize = 128;

/// What a tenant takes of the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes, as the disk has them. What is linked is counted once.
    pub bytes: u64,
    /// Files, folders and links.
    pub inodes: u64,
}

impl DiskUsage {
    /// Both together.
    pub(super) const fn and(self, other: Self) -> Self {
        let (bytes, inodes) =
            (self.bytes.saturating_add(other.bytes), self.inodes.saturating_add(other.inodes));
        Self { bytes, inodes }
    }
}

/// What a walk found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Found {
    usage: DiskUsage,
    /// Why there may be more than was counted.
    missed: Option<&'static str>,
}

/// How new what was measured must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// Measured after this was asked for.
    Now,
    /// Measured a little ago, if need be.
    Recent,
}

/// The meters of all tenants. Clones are the same.
#[derive(Clone)]
pub(crate) struct Meters {
    places: Arc<Places>,
    policies: Policies,
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Walks in the background. Each ends by itself, and holds nothing up.
    walks: TaskTracker,
    meters: Mutex<BTreeMap<TenantId, Arc<Meter>>>,
}

/// What was measured last of a tenant.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// One walks at a time. Those who asked before it began have what it finds.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// How many walks have begun.
    begun: AtomicU64,
    last: Mutex<Option<Measured>>,
    /// What is about to be stored. Locked before the above.
    pub(super) asides: Asides,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    found: Found,
    /// Which walk it was, counted from 1.
    walk: u64,
    fresh_until: Deadline,
    usable_until: Deadline,
}

impl Meter {
    /// What a walk finds that begins behind this call.
    pub(super) async fn walk(&self, place: impl Into<Place>) -> Result<Found, RuntimeError> {
        let begun = self.begun.load(Ordering::Acquire);
        let _turn = self.turn.lock().await;
        let last = *lock(&self.last);
        if let Some(last) = last.filter(|last| last.walk > begun) {
            return Ok(last.found);
        }
        let walk = self.begin_walk();
        let found = place.into().measure().await?;
        self.walked(walk, found);
        Ok(found)
    }

    /// The number of a walk that begins.
    pub(super) fn begin_walk(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(super) fn walks_begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// The walk that found what is known; 0 where there was none.
    pub(super) fn last_walk(&self) -> u64 {
        lock(&self.last).map_or(0, |last| last.walk)
    }

    fn found(&self) -> Found {
        lock(&self.last).map(|last| last.found).unwrap_or_default()
    }

    pub(super) fn walked(&self, walk: u64, found: Found) {
        let measured = Measured {
            found,
            walk,
            fresh_until: SystemClock.deadline(FRESH),
            usable_until: SystemClock.deadline(USABLE),
        };
        *lock(&self.last) = Some(measured);
    }
}

impl Meters {
    pub(crate) fn new(home: Arc<Home>, policies: Policies) -> Self {
        Self { places: Arc::new(Places::new(home)), policies, inner: Arc::default() }
    }

    /// What tenants have recorded counts from now on, with large bodies in this folder.
    pub(crate) fn count_recorded(&self, tenancy: Tenancy, bodies: PathBuf) {
        self.places.count_recorded(tenancy, bodies);
    }

    /// Refuses what needs more of the disk where the tenant has as much as it may.
    pub(crate) async fn check(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        let policy = self.policies.of(tenant);
        if !policy.limits_disk() {
            return Ok(());
        }
        let judge = |found| judge(tenant, &policy, found, DiskUsage::default());
        if judge(self.look(tenant, Freshness::Recent).await?).is_ok() {
            return Ok(());
        }
        // Something may have been deleted since.
        judge(self.look(tenant, Freshness::Now).await?)
    }

    /// Sets so much of the tenant's disk aside, where it may have that much more; `None` where it may have as much as it likes.
    pub(super) async fn set_aside(
        &self,
        tenant: &TenantId,
        more: DiskUsage,
    ) -> Result<Option<AsideGuard>, RuntimeError> {
        let policy = self.policies.of(tenant);
        if !policy.limits_disk() {
            return Ok(None);
        }
        let meter = self.meter(tenant);
        let try_it = || meter.set_aside(more, |sum| judge(tenant, &policy, meter.found(), sum));
        self.look_at(&meter, tenant, Freshness::Recent).await?;
        if let Ok(guard) = try_it() {
            return Ok(Some(guard));
        }
        self.look_at(&meter, tenant, Freshness::Now).await?;
        try_it().map(Some)
    }

    fn meter(&self, tenant: &TenantId) -> Arc<Meter> {
        Arc::clone(lock(&self.inner.meters).entry(tenant.clone()).or_default())
    }

    /// What the tenant takes of the disk, as far as it can be looked at.
    pub(crate) async fn measure(
        &self,
        tenant: &TenantId,
        freshness: Freshness,
    ) -> Result<DiskUsage, RuntimeError> {
        Ok(self.look(tenant, freshness).await?.usage)
    }

    async fn look(&self, tenant: &TenantId, freshness: Freshness) -> Result<Found, RuntimeError> {
        self.look_at(&self.meter(tenant), tenant, freshness).await
    }

    async fn look_at(
        &self,
        meter: &Arc<Meter>,
        tenant: &TenantId,
        freshness: Freshness,
    ) -> Result<Found, RuntimeError> {
        let last = *lock(&meter.last);
        if let (Freshness::Recent, Some(last)) = (freshness, last) {
            let is_over = |deadline| SystemClock.remaining(deadline).is_zero();
            if !is_over(last.usable_until) {
                if is_over(last.fresh_until) && meter.turn.try_lock().is_ok() {
                    let (meter, place, tenant) = (Arc::clone(meter), self.places.of(tenant), tenant.clone());
                    drop(self.inner.walks.spawn(async move {
                        if let Err(error) = meter.walk(place).await {
                            tracing::debug!(%tenant, %error, "what a tenant has on the disk is not measured");
                        }
                    }));
                }
                return Ok(last.found);
            }
        }
        meter.walk(self.places.of(tenant)).await
    }

    /// The tenant has nothing any more.
    pub(crate) fn forget(&self, tenant: &TenantId) {
        lock(&self.inner.meters).remove(tenant);
    }
}

/// Whether the tenant may have so much more than was found.
fn judge(
    tenant: &TenantId,
    policy: &TenantPolicy,
    Found { usage, missed }: Found,
    more: DiskUsage,
) -> Result<(), RuntimeError> {
    let of = |quota, limit, current| {
        Err(RuntimeError::Quota(QuotaExceeded::new(tenant.clone(), quota, limit, current)))
    };
    let (bytes, inodes) = (policy.disk_bytes, policy.inodes);
    let sum = usage.and(more);
    match missed {
        _ if usage.bytes >= bytes || sum.bytes > bytes => of(Quota::DiskBytes, bytes, sum.bytes),
        _ if usage.inodes >= inodes || sum.inodes > inodes => of(Quota::Inodes, inodes, sum.inodes),
        // Whoever could hide what they have would have as much as they like.
        Some(reason) => Err(RuntimeError::Unmeasured { tenant: tenant.clone(), reason }),
        None => Ok(()),
    }
}

/// Walks a folder, following no link. What goes while it walks is not counted, and not missed.
pub(super) fn measure(folder: &Path) -> Found {
    let mut found = Found::default();
    let mut linked: HashSet<(u64, u64)> = HashSet::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let listed = |folder: OwnedFd| Dir::read_from(&folder).map(|names| (folder, names));
    let open = |folder: &OwnedFd, name: &CStr| {
        rustix::fs::openat(folder, name, flags, Mode::empty()).and_then(listed)
    };
    let mut open_folders: Vec<(OwnedFd, Dir)> = Vec::new();
    match rustix::fs::openat(CWD, folder, flags, Mode::empty()).and_then(listed) {
        Ok(top) => open_folders.push(top),
        Err(error) => found.miss(error),
    }
    while let Some((folder, names)) = open_folders.last_mut() {
        let entry = match names.next() {
            Some(Ok(entry)) => entry,
            end => {
                let _ = end.map(|failed| failed.map_err(|error| found.miss(error)));
                open_folders.pop();
                continue;
            }
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if found.usage.inodes >= MOST_NAMES {
            found.missed = Some("it has more than 4,000,000 files and folders");
            break;
        }
        let stat = match rustix::fs::statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => {
                found.miss(error);
                continue;
            }
        };
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_folder || stat.st_nlink < 2 || linked.insert((stat.st_dev, stat.st_ino)) {
            found.usage.inodes += 1;
            let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
            found.usage.bytes = found.usage.bytes.saturating_add(blocks.saturating_mul(512));
        }
        if !is_folder {
            continue;
        }
        if open_folders.len() >= DEEPEST {
            found.missed = Some("its folders are more than 128 deep");
            continue;
        }
        match open_folders.last().map(|(folder, _)| open(folder, name)) {
            Some(Ok(below)) => open_folders.push(below),
            Some(Err(error)) => found.miss(error),
            None => {}
        }
    }
    found
}

impl Found {
    /// So much, and nothing besides.
    pub(super) const fn whole(usage: DiskUsage) -> Self {
        Self { usage, missed: None }
    }

    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        Self { usage: self.usage.and(other.usage), missed: self.missed.or(other.missed) }
    }

    /// Notes that something was not looked at, unless it is not there any more.
    fn miss(&mut self, error: Errno) {
        if !matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP) {
            self.missed = Some("some of its folders cannot be read");
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_who_ask_while_one_walks_have_the_next_walk_together() {
        let folder = tempfile::tempdir().unwrap();
        let meter = Meter::default();
        let walks = |turn| {
            let all = futures_util::future::join_all((0..40).map(|_| meter.walk(folder.path().to_owned())));
            futures_util::future::join(all, async move { drop(turn) })
        };
        // As if somebody walked.
        walks(meter.turn.lock().await).await;
        assert_eq!(meter.begun.load(Ordering::Acquire), 1);
        walks(meter.turn.lock().await).await;
        assert_eq!(meter.begun.load(Ordering::Acquire), 2);
    }

    #[test]
    fn a_folder_is_measured_without_following_anything() {
        let made = tempfile::tempdir().unwrap();
        let folder = made.path();
        assert_eq!(measure(folder), Found::default());
        assert_eq!(measure(&folder.join("none")), Found::default());
        std::fs::create_dir(folder.join("a")).unwrap();
        std::fs::write(folder.join("a/file"), vec![1; 100_000]).unwrap();
        let one = measure(folder);
        assert_eq!((one.usage.inodes, one.missed), (2, None));
        assert!((100_000..200_000).contains(&one.usage.bytes), "{one:?}");
        // A link costs nothing, and leads nowhere.
        std::fs::hard_link(folder.join("a/file"), folder.join("a/again")).unwrap();
        assert_eq!(measure(folder), one);
        std::os::unix::fs::symlink("/usr", folder.join("a/usr")).unwrap();
        assert_eq!(measure(folder).usage.inodes, 3);
        // However deep it goes, and it says that there is more.
        let mut deep = folder.to_owned();
        for _ in 0..2 * DEEPEST {
            deep.push("d");
        }
        std::fs::create_dir_all(&deep).unwrap();
        let deep = measure(folder);
        assert_eq!(deep.usage.inodes, 3 + DEEPEST as u64);
        assert!(deep.missed.is_some_and(|missed| missed.contains(&DEEPEST.to_string())), "{deep:?}");
    }
}
