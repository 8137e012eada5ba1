//! Measures the disk usage of tenants, in their data folders and in the journal. A scan runs on a thread that may
//! block, one at a time for each tenant, and only when a new value is needed.
//!
//! A recent value is good enough to continue with, and is measured again in the background. Before a quota refuses
//! something, it is measured again. State: the last values, in memory.

use std::collections::{BTreeMap, HashSet};
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_actors::tenants::{Quota, QuotaExceeded, TenantAccounts};
use conjure_base::{Clock as _, Deadline, SystemClock, TenantId};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use tokio_util::task::TaskTracker;

use crate::runtime::data::data_layout::RuntimeDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::task_set::run_blocking;
use crate::runtime::tenants::space_reservations::{ReservationGuard, SpaceReservations};
use crate::runtime::tenants::tenant_policies::TenantPolicies;
use crate::runtime::tenants::tenant_policy::TenantPolicy;
use crate::runtime::tenants::usage_roots::{TenantRoots, UsageRoots};

/// How long a value needs no new scan.
const FRESH_FOR: Duration = Duration::from_secs(2);

/// How long a value may be used while a new scan runs.
const USABLE_FOR: Duration = Duration::from_secs(60);

/// The most entries of a scan.
const MAX_ENTRIES: u64 = 4_000_000;

/// The greatest depth of a scan, which has one folder open for each level.
const MAX_DEPTH: usize = 128;

/// The disk usage of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Allocated bytes. Hard links are counted once.
    pub bytes: u64,
    /// Files, folders and links.
    pub inodes: u64,
}

impl DiskUsage {
    /// The sum of both.
    pub(super) const fn plus(self, other: Self) -> Self {
        let (bytes, inodes) =
            (self.bytes.saturating_add(other.bytes), self.inodes.saturating_add(other.inodes));
        Self { bytes, inodes }
    }
}

/// The result of a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MeasuredUsage {
    usage: DiskUsage,
    /// Why there may be more than was counted.
    incomplete_reason: Option<&'static str>,
}

/// How old a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MaxAge {
    /// Measured after the request.
    Now,
    /// Measured recently.
    Recent,
}

/// The disk usage of all tenants. Clones share it.
#[derive(Clone)]
pub(crate) struct DiskUsageCache {
    roots: Arc<UsageRoots>,
    policies: TenantPolicies,
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Scans in the background. Each ends by itself, and nobody waits for it.
    scans: TaskTracker,
    entries: Mutex<BTreeMap<TenantId, Arc<TenantUsageEntry>>>,
}

/// The last value of a tenant.
#[derive(Debug, Default)]
pub(super) struct TenantUsageEntry {
    /// Only one scan runs at a time. Whoever waits for it before it starts shares its result.
    pub(super) scan_lock: tokio::sync::Mutex<()>,
    /// How many scans were started.
    scans_started: AtomicU64,
    last: Mutex<Option<Measured>>,
    /// Space reserved for contents that are being stored. Locked before `last`.
    pub(super) reservations: SpaceReservations,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    found: MeasuredUsage,
    /// The number of the scan, counted from 1.
    scan: u64,
    fresh_until: Deadline,
    usable_until: Deadline,
}

impl TenantUsageEntry {
    /// The result of a scan that starts after this call.
    pub(super) async fn scan(&self, place: impl Into<TenantRoots>) -> Result<MeasuredUsage, RuntimeError> {
        let scans_started = self.scans_started.load(Ordering::Acquire);
        let _turn = self.scan_lock.lock().await;
        let last = *lock(&self.last);
        if let Some(last) = last.filter(|last| last.scan > scans_started) {
            return Ok(last.found);
        }
        let scan = self.start_scan();
        let found = place.into().measure().await?;
        self.record_scan(scan, found);
        Ok(found)
    }

    /// Starts a scan, and returns its number.
    pub(super) fn start_scan(&self) -> u64 {
        self.scans_started.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(super) fn scans_begun(&self) -> u64 {
        self.scans_started.load(Ordering::Acquire)
    }

    /// The number of the scan with the last value; 0 if there was none.
    pub(super) fn last_scan(&self) -> u64 {
        lock(&self.last).map_or(0, |last| last.scan)
    }

    fn found(&self) -> MeasuredUsage {
        lock(&self.last).map(|last| last.found).unwrap_or_default()
    }

    pub(super) fn record_scan(&self, scan: u64, found: MeasuredUsage) {
        let measured = Measured {
            found,
            scan,
            fresh_until: SystemClock.deadline(FRESH_FOR),
            usable_until: SystemClock.deadline(USABLE_FOR),
        };
        *lock(&self.last) = Some(measured);
    }
}

impl DiskUsageCache {
    pub(crate) fn new(home: Arc<RuntimeDir>, policies: TenantPolicies) -> Self {
        Self { roots: Arc::new(UsageRoots::new(home)), policies, inner: Arc::default() }
    }

    /// From now on the journal counts as disk usage; its large bodies are in this folder.
    pub(crate) fn set_journal(&self, tenancy: TenantAccounts, bodies: PathBuf) {
        self.roots.set_journal(tenancy, bodies);
    }

    /// Fails if the tenant has reached its disk quota.
    pub(crate) async fn check(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        let policy = self.policies.policy(tenant);
        if !policy.limits_disk() {
            return Ok(());
        }
        let check_quota = |found| check_quota(tenant, &policy, found, DiskUsage::default());
        if check_quota(self.current(tenant, MaxAge::Recent).await?).is_ok() {
            return Ok(());
        }
        // Something may have been deleted since.
        check_quota(self.current(tenant, MaxAge::Now).await?)
    }

    /// Reserves space for the tenant if its quota allows it; `None` if it has no disk quota.
    pub(super) async fn reserve(
        &self,
        tenant: &TenantId,
        more: DiskUsage,
    ) -> Result<Option<ReservationGuard>, RuntimeError> {
        let policy = self.policies.policy(tenant);
        if !policy.limits_disk() {
            return Ok(None);
        }
        let meter = self.entry(tenant);
        let try_it = || meter.reserve(more, |sum| check_quota(tenant, &policy, meter.found(), sum));
        self.current_entry(&meter, tenant, MaxAge::Recent).await?;
        if let Ok(guard) = try_it() {
            return Ok(Some(guard));
        }
        self.current_entry(&meter, tenant, MaxAge::Now).await?;
        try_it().map(Some)
    }

    /// Reserves space for a copy of this folder if the tenant's quota allows it; `None` if it has no disk quota.
    pub(crate) async fn reserve_copy(
        &self,
        tenant: &TenantId,
        folder: &Path,
    ) -> Result<Option<ReservationGuard>, RuntimeError> {
        if !self.policies.policy(tenant).limits_disk() {
            return Ok(None);
        }
        let folder = folder.to_owned();
        let found = run_blocking("measuring a workspace", move || Ok(measure(&folder))).await?;
        if let Some(reason) = found.incomplete_reason {
            return Err(RuntimeError::UsageUnknown { tenant: tenant.clone(), reason });
        }
        // A copy may be as large as all that the tenant has, so an older value is not good enough.
        self.current(tenant, MaxAge::Now).await?;
        self.reserve(tenant, found.usage).await
    }

    fn entry(&self, tenant: &TenantId) -> Arc<TenantUsageEntry> {
        Arc::clone(lock(&self.inner.entries).entry(tenant.clone()).or_default())
    }

    /// The tenant's disk usage, as far as it can be measured.
    pub(crate) async fn measure(
        &self,
        tenant: &TenantId,
        freshness: MaxAge,
    ) -> Result<DiskUsage, RuntimeError> {
        Ok(self.current(tenant, freshness).await?.usage)
    }

    async fn current(&self, tenant: &TenantId, freshness: MaxAge) -> Result<MeasuredUsage, RuntimeError> {
        self.current_entry(&self.entry(tenant), tenant, freshness).await
    }

    async fn current_entry(
        &self,
        meter: &Arc<TenantUsageEntry>,
        tenant: &TenantId,
        freshness: MaxAge,
    ) -> Result<MeasuredUsage, RuntimeError> {
        let last = *lock(&meter.last);
        if let (MaxAge::Recent, Some(last)) = (freshness, last) {
            let is_over = |deadline| SystemClock.remaining(deadline).is_zero();
            if !is_over(last.usable_until) {
                if is_over(last.fresh_until) && meter.scan_lock.try_lock().is_ok() {
                    let (meter, place, tenant) =
                        (Arc::clone(meter), self.roots.roots(tenant), tenant.clone());
                    drop(self.inner.scans.spawn(async move {
                        if let Err(error) = meter.scan(place).await {
                            tracing::debug!(%tenant, %error, "the disk usage of a tenant was not measured");
                        }
                    }));
                }
                return Ok(last.found);
            }
        }
        meter.scan(self.roots.roots(tenant)).await
    }

    /// Forgets a tenant that has nothing any more.
    pub(crate) fn forget(&self, tenant: &TenantId) {
        lock(&self.inner.entries).remove(tenant);
    }
}

/// Checks that the tenant's quota allows this usage.
fn check_quota(
    tenant: &TenantId,
    policy: &TenantPolicy,
    MeasuredUsage { usage, incomplete_reason }: MeasuredUsage,
    more: DiskUsage,
) -> Result<(), RuntimeError> {
    let of = |quota, limit, current| {
        Err(RuntimeError::Quota(QuotaExceeded::new(tenant.clone(), quota, limit, current)))
    };
    let (bytes, inodes) = (policy.disk_bytes, policy.inodes);
    let sum = usage.plus(more);
    match incomplete_reason {
        _ if usage.bytes >= bytes || sum.bytes > bytes => of(Quota::DiskBytes, bytes, sum.bytes),
        _ if usage.inodes >= inodes || sum.inodes > inodes => of(Quota::Inodes, inodes, sum.inodes),
        // Otherwise a tenant could exceed its quota by hiding files.
        Some(reason) => Err(RuntimeError::UsageUnknown { tenant: tenant.clone(), reason }),
        None => Ok(()),
    }
}

/// Measures a folder, without following links. Entries that disappear meanwhile are not counted, and do not make the
/// result incomplete.
pub(super) fn measure(folder: &Path) -> MeasuredUsage {
    let mut found = MeasuredUsage::default();
    let mut linked: HashSet<(u64, u64)> = HashSet::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let listed = |folder: OwnedFd| Dir::read_from(&folder).map(|names| (folder, names));
    let open = |folder: &OwnedFd, name: &CStr| {
        rustix::fs::openat(folder, name, flags, Mode::empty()).and_then(listed)
    };
    let mut open_folders: Vec<(OwnedFd, Dir)> = Vec::new();
    match rustix::fs::openat(CWD, folder, flags, Mode::empty()).and_then(listed) {
        Ok(top) => open_folders.push(top),
        Err(error) => found.record_error(error),
    }
    while let Some((folder, names)) = open_folders.last_mut() {
        let entry = match names.next() {
            Some(Ok(entry)) => entry,
            end => {
                let _ = end.map(|failed| failed.map_err(|error| found.record_error(error)));
                open_folders.pop();
                continue;
            }
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if found.usage.inodes >= MAX_ENTRIES {
            found.incomplete_reason = Some("it has more than 4,000,000 files and folders");
            break;
        }
        let stat = match rustix::fs::statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => {
                found.record_error(error);
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
        if open_folders.len() >= MAX_DEPTH {
            found.incomplete_reason = Some("its folders are more than 128 deep");
            continue;
        }
        match open_folders.last().map(|(folder, _)| open(folder, name)) {
            Some(Ok(below)) => open_folders.push(below),
            Some(Err(error)) => found.record_error(error),
            None => {}
        }
    }
    found
}

impl MeasuredUsage {
    /// A complete result.
    pub(super) const fn complete(usage: DiskUsage) -> Self {
        Self { usage, incomplete_reason: None }
    }

    /// The sum of both.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            usage: self.usage.plus(other.usage),
            incomplete_reason: self.incomplete_reason.or(other.incomplete_reason),
        }
    }

    /// Records that an entry was not measured, unless it disappeared.
    fn record_error(&mut self, error: Errno) {
        if !matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP) {
            self.incomplete_reason = Some("some of its folders cannot be read");
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
        let meter = TenantUsageEntry::default();
        let scans = |turn| {
            let all = futures_util::future::join_all((0..40).map(|_| meter.scan(folder.path().to_owned())));
            futures_util::future::join(all, async move { drop(turn) })
        };
        // As if a scan ran.
        scans(meter.scan_lock.lock().await).await;
        assert_eq!(meter.scans_started.load(Ordering::Acquire), 1);
        scans(meter.scan_lock.lock().await).await;
        assert_eq!(meter.scans_started.load(Ordering::Acquire), 2);
    }

    #[test]
    fn a_folder_is_measured_without_following_anything() {
        let made = tempfile::tempdir().unwrap();
        let folder = made.path();
        assert_eq!(measure(folder), MeasuredUsage::default());
        assert_eq!(measure(&folder.join("none")), MeasuredUsage::default());
        std::fs::create_dir(folder.join("a")).unwrap();
        std::fs::write(folder.join("a/file"), vec![1; 100_000]).unwrap();
        let one = measure(folder);
        assert_eq!((one.usage.inodes, one.incomplete_reason), (2, None));
        assert!((100_000..200_000).contains(&one.usage.bytes), "{one:?}");
        // A hard link costs nothing, and a symbolic link is not followed.
        std::fs::hard_link(folder.join("a/file"), folder.join("a/again")).unwrap();
        assert_eq!(measure(folder), one);
        std::os::unix::fs::symlink("/usr", folder.join("a/usr")).unwrap();
        assert_eq!(measure(folder).usage.inodes, 3);
        // A folder that is too deep makes the result incomplete.
        let mut deep = folder.to_owned();
        for _ in 0..2 * MAX_DEPTH {
            deep.push("d");
        }
        std::fs::create_dir_all(&deep).unwrap();
        let deep = measure(folder);
        assert_eq!(deep.usage.inodes, 3 + MAX_DEPTH as u64);
        assert!(
            deep.incomplete_reason
                .is_some_and(|incomplete_reason| incomplete_reason.contains(&MAX_DEPTH.to_string())),
            "{deep:?}"
        );
    }
}
