//! How much of the disk a tenant's data folder takes: measured by a walk on a thread that may block, one at a time for each
//! tenant, and no more often than it changes anything.
//!
//! What was measured a moment ago is good enough to go on with, and is measured anew in the background; what would refuse
//! somebody is measured anew first. State: what was measured last, in memory.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_actors::admission::Permit;
use conjure_actors::executors::ExecutorSource;
use conjure_actors::tenants::{Quota, QuotaExceeded};
use conjure_base::{Clock as _, Deadline, SystemClock, TenantId};
use conjure_sandbox::{Executor, Isolation, Layout, SandboxError, SandboxErrorKind};
use futures_util::future::BoxFuture;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use tokio_util::task::TaskTracker;

use super::super::error::RuntimeError;
use super::super::home::Home;
use super::super::outfit::blocking;
use super::policies::Policies;

/// How long what was measured is good for without another look.
const FRESH: Duration = Duration::from_secs(2);

/// How long it is good enough to go on with.
const USABLE: Duration = Duration::from_secs(60);

/// No walk looks at more names.
const MOST_NAMES: u64 = 4_000_000;

/// No walk goes deeper: it has one folder open for each step down.
const DEEPEST: usize = 128;

/// What a folder takes of the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes, as the disk has them. What is linked is counted once.
    pub bytes: u64,
    /// Files, folders and links.
    pub inodes: u64,
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
    home: Arc<Home>,
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
#[derive(Default)]
struct Meter {
    /// One walks at a time; the others have what it finds.
    turn: tokio::sync::Mutex<()>,
    last: Mutex<Option<Measured>>,
}

#[derive(Clone, Copy)]
struct Measured {
    usage: DiskUsage,
    fresh_until: Deadline,
    usable_until: Deadline,
}

impl Meters {
    pub(crate) fn new(home: Arc<Home>, policies: Policies) -> Self {
        Self { home, policies, inner: Arc::default() }
    }

    /// Refuses what needs more of the disk where the tenant has as much as it may.
    pub(crate) async fn check(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        let policy = self.policies.of(tenant);
        if !policy.limits_disk() {
            return Ok(());
        }
        let exceeded = |usage: DiskUsage| {
            let of = |quota, limit, current| QuotaExceeded::new(tenant.clone(), quota, limit, current);
            if usage.bytes >= policy.disk_bytes {
                Some(of(Quota::DiskBytes, policy.disk_bytes, usage.bytes))
            } else {
                let is_full = usage.inodes >= policy.inodes;
                is_full.then(|| of(Quota::Inodes, policy.inodes, usage.inodes))
            }
        };
        if exceeded(self.measure(tenant, Freshness::Recent).await?).is_none() {
            return Ok(());
        }
        // Something may have been deleted since.
        match exceeded(self.measure(tenant, Freshness::Now).await?) {
            Some(exceeded) => Err(RuntimeError::Quota(exceeded)),
            None => Ok(()),
        }
    }

    /// What the tenant's data folder takes; nothing, where it has none.
    pub(crate) async fn measure(
        &self,
        tenant: &TenantId,
        freshness: Freshness,
    ) -> Result<DiskUsage, RuntimeError> {
        let meter = Arc::clone(lock(&self.inner.meters).entry(tenant.clone()).or_default());
        let last = *lock(&meter.last);
        if let (Freshness::Recent, Some(last)) = (freshness, last) {
            let is_over = |deadline| SystemClock.remaining(deadline).is_zero();
            if !is_over(last.usable_until) {
                if is_over(last.fresh_until) && meter.turn.try_lock().is_ok() {
                    let (meters, tenant) = (self.clone(), tenant.clone());
                    drop(self.inner.walks.spawn(async move {
                        if let Err(error) = meters.walk(&tenant, &meter).await {
                            tracing::debug!(%tenant, %error, "a tenant's folder is not measured");
                        }
                    }));
                }
                return Ok(last.usage);
            }
        }
        self.walk(tenant, &meter).await
    }

    async fn walk(&self, tenant: &TenantId, meter: &Arc<Meter>) -> Result<DiskUsage, RuntimeError> {
        let _turn = meter.turn.lock().await;
        let folder = self.home.place(tenant);
        let usage = blocking("measuring a tenant's folder", move || Ok(measure(&folder))).await?;
        let measured = Measured {
            usage,
            fresh_until: SystemClock.deadline(FRESH),
            usable_until: SystemClock.deadline(USABLE),
        };
        *lock(&meter.last) = Some(measured);
        Ok(usage)
    }

    /// The tenant has nothing any more.
    pub(crate) fn forget(&self, tenant: &TenantId) {
        lock(&self.inner.meters).remove(tenant);
    }
}

/// Walks a folder, following no link. What cannot be looked at is not counted.
fn measure(folder: &Path) -> DiskUsage {
    let mut usage = DiskUsage::default();
    let mut linked: HashSet<(u64, u64)> = HashSet::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open =
        |folder: &OwnedFd, name: &std::ffi::CStr| rustix::fs::openat(folder, name, flags, Mode::empty());
    let listed = |folder: OwnedFd| Dir::read_from(&folder).ok().map(|names| (folder, names));
    let Ok(top) = rustix::fs::openat(CWD, folder, flags, Mode::empty()) else { return usage };
    let mut open_folders: Vec<(OwnedFd, Dir)> = listed(top).into_iter().collect();
    while let Some((folder, names)) = open_folders.last_mut() {
        let Some(Ok(entry)) = names.next() else {
            open_folders.pop();
            continue;
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || usage.inodes >= MOST_NAMES {
            continue;
        }
        let Ok(found) = rustix::fs::statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        let is_new = is_folder || found.st_nlink < 2 || linked.insert((found.st_dev, found.st_ino));
        if is_new {
            usage.inodes += 1;
            let blocks = u64::try_from(found.st_blocks).unwrap_or(0);
            usage.bytes = usage.bytes.saturating_add(blocks.saturating_mul(512));
        }
        if is_folder && open_folders.len() < DEEPEST {
            let below = open_folders.last().and_then(|(folder, _)| open(folder, name).ok());
            open_folders.extend(below.and_then(listed));
        }
    }
    usage
}

/// Sandboxes of a tenant that get none where its data folder is full.
pub(crate) struct MeteredSource {
    source: Arc<dyn ExecutorSource>,
    meters: Meters,
    tenant: TenantId,
}

impl MeteredSource {
    pub(crate) fn new(source: Arc<dyn ExecutorSource>, meters: Meters, tenant: TenantId) -> Self {
        Self { source, meters, tenant }
    }
}

impl ExecutorSource for MeteredSource {
    fn layout(&self) -> &Layout {
        self.source.layout()
    }

    fn isolation(&self) -> Isolation {
        self.source.isolation()
    }

    fn admit(&self, deadline: Deadline) -> BoxFuture<'_, Result<Option<Permit>, SandboxError>> {
        Box::pin(async move {
            let late = || {
                SandboxError::new(
                    SandboxErrorKind::Unavailable,
                    "the tenant's folder was not measured in time",
                )
            };
            let checked = tokio::select! {
                biased;
                checked = self.meters.check(&self.tenant) => checked,
                () = SystemClock.sleep_until(deadline) => return Err(late()),
            };
            checked.map_err(|error| SandboxError::new(SandboxErrorKind::NoSpace, error.to_string()))?;
            self.source.admit(deadline).await
        })
    }

    fn open(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        self.source.open(deadline)
    }
}

impl std::fmt::Debug for MeteredSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeteredSource").field("source", &self.source).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_measured_without_following_anything() {
        let made = tempfile::tempdir().unwrap();
        let folder = made.path();
        assert_eq!(measure(folder), DiskUsage::default());
        assert_eq!(measure(&folder.join("none")), DiskUsage::default());
        std::fs::create_dir(folder.join("a")).unwrap();
        std::fs::write(folder.join("a/file"), vec![1; 100_000]).unwrap();
        let one = measure(folder);
        assert_eq!(one.inodes, 2);
        assert!((100_000..200_000).contains(&one.bytes), "{one:?}");
        // A link costs nothing, and leads nowhere.
        std::fs::hard_link(folder.join("a/file"), folder.join("a/again")).unwrap();
        assert_eq!(measure(folder), one);
        std::os::unix::fs::symlink("/usr", folder.join("a/usr")).unwrap();
        assert_eq!(measure(folder).inodes, 3);
        // However deep it goes.
        let mut deep = folder.to_owned();
        for _ in 0..2 * DEEPEST {
            deep.push("d");
        }
        std::fs::create_dir_all(&deep).unwrap();
        assert_eq!(measure(folder).inodes, 3 + DEEPEST as u64);
    }
}
