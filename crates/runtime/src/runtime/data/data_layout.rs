//! The layout of a runtime's data directory and of its tenants' directories in it.
//!
//! ```text
//! <data>/journal/                     the event logs of sessions
//! <data>/processes/                   the lock files of processes
//! <data>/hosts                        a file that keeps earlier versions out (`migration`)
//! <data>/deleting/TENANT              a tenant that is being deleted
//! <data>/remote-cleanup/              notes of what is to be deleted at models' services
//! <data>/containers                   exists if sessions had containers, so that each start sweeps them
//! <data>/pool/                        the directories of warm sandboxes, and of those that sessions claimed
//! <data>/tenants/TENANT/              the data directory of a tenant: its store, its sandboxes, its workspaces
//! <data>/tenants/TENANT/workspaces/SESSION/workspace   the directory that a session works in
//! <data>/tenants/TENANT/skills/DIGEST/NAME/            a pinned skill
//! <data>/tenants/TENANT/artifacts/SESSION/             the pins of a session's artifacts
//! <data>/tenants/TENANT/files/NAME                    a file that was uploaded
//! <data>/tenants/TENANT/user-workspaces/DIGEST         a link to a user's directory in which a session works or worked
//! <data>/tenants/TENANT/pending/SESSION                the intent record of a session that is being opened or deleted
//! <data>/tenants/TENANT/tenant.lock                    the lock of the tenant
//! ```
//!
//! State: all of this on the disk; in memory, which directories are open. A tenant's directory is open while a session of the
//! tenant is live. It is also open while a task opens, deletes or sweeps something in it. An idle tenant has nothing
//! open.
//!
//! After a crash, sandboxes' files are removed when a process first opens the tenant's directory. Workspaces and skills
//! stay until their sessions are deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use conjure_base::{FileId, SessionId, TenantId, lock};
use conjure_fs::{ensure_dir, ensure_file};
use conjure_sandbox::{Connector, DataDir, SandboxError, dir_id, remove_tree};

use crate::config::ExecutorKind;
use crate::runtime::data::intents::SessionIntents;
use crate::runtime::data::migration;
use crate::runtime::data::pinned_skills::PinnedSkills;
use crate::runtime::data::temp_data_dir::TempDataDir;
use crate::runtime::data::tenant_lock::TenantLock;
use crate::runtime::data::tenant_map::{EntryGuard, TenantMap};
use crate::runtime::error::RuntimeError;
use crate::runtime::options::JournalLocation;
use crate::runtime::task_set::run_blocking;
use crate::workspace::TENANTS;

/// The data directory of a runtime.
#[derive(Debug)]
pub(crate) struct RuntimeDir {
    path: PathBuf,
    id: FileId,
    record: JournalLocation,
    tenants: TenantMap<TenantDir>,
    /// All tenant directories that were opened, if the journal is in memory. They stay open because the pinned skills of
    /// passivated sessions end with them.
    open_in_memory: Mutex<BTreeMap<TenantId, Arc<TenantDir>>>,
    /// The tenants whose directories were swept since this process started.
    swept: Mutex<BTreeSet<TenantId>>,
    /// The temporary directory. It is removed when this is dropped.
    temporary: Option<TempDataDir>,
}

/// The data directory of a tenant. Tenants share nothing. It is closed when its last user drops it.
#[derive(Debug)]
pub(crate) struct TenantDir {
    id: FileId,
    record: JournalLocation,
    pub(crate) data: DataDir,
    pub(crate) pins: PinnedSkills,
    pub(crate) tenant_lock: TenantLock,
    intents: SessionIntents,
    /// The connectors that create sandboxes in this directory, by kind.
    connectors: Mutex<BTreeMap<&'static str, Arc<dyn Connector>>>,
    _lease: EntryGuard<Self>,
}

impl RuntimeDir {
    /// Opens the data in this directory. A missing directory is created, accessible only to its owner. Blocks.
    pub(crate) fn open(path: &Path, record: JournalLocation) -> Result<Self, RuntimeError> {
        let path = ensure_dir(path)
            .and_then(|()| path.canonicalize())
            .map_err(|error| RuntimeError::data(path, &error))?;
        migration::migrate(&path)?;
        Self::at(path, record, None)
    }

    /// Creates a temporary data directory. It is removed when its last user drops it. Blocks.
    pub(crate) fn temporary() -> Result<Self, RuntimeError> {
        let temporary = TempDataDir::create(&std::env::temp_dir())?;
        Self::at(temporary.path().to_owned(), JournalLocation::InMemory, Some(temporary))
    }

    fn at(
        path: PathBuf,
        record: JournalLocation,
        temporary: Option<TempDataDir>,
    ) -> Result<Self, RuntimeError> {
        let id = dir_id(&path).map_err(|error| RuntimeError::data(&path, &error))?;
        let (tenants, open_in_memory, swept) = Default::default();
        Ok(Self { path, id, record, tenants, open_in_memory, swept, temporary })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of the journal.
    pub(crate) fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// Makes a temporary directory stay when this is dropped.
    pub(crate) fn keep(&self) {
        if let Some(temporary) = &self.temporary {
            temporary.keep();
        }
    }

    /// Records on the disk that sessions have containers. Blocks.
    pub(crate) fn note_containers(&self) -> Result<(), RuntimeError> {
        let path = self.path.join(CONTAINERS);
        ensure_file(&path).map_err(|error| RuntimeError::data(&path, &error))
    }

    /// Whether sessions of this process or an earlier one had containers. Blocks briefly.
    #[cfg(feature = "docker")]
    pub(crate) fn had_containers(&self) -> bool {
        self.path.join(CONTAINERS).exists()
    }

    /// Removes what dead processes left in a tenant's directory. Returns whether the tenant has a directory. Blocks.
    ///
    /// A directory that no other task uses is closed again, since there may be many tenants.
    pub(crate) fn sweep(&self, tenant: &TenantId) -> Result<bool, RuntimeError> {
        self.check()?;
        self.tenants.with_exclusive(tenant, |slot| {
            if !self.tenant_path(tenant).is_dir() {
                return Ok(false);
            }
            let is_done = lock(&self.swept).contains(tenant);
            let home = self.opened(tenant, slot)?;
            // Otherwise opening the directory has just swept it.
            if is_done {
                home.data.sweep();
            }
            Ok(true)
        })
    }

    /// The directory of a tenant, if it exists. It is never created, even when it is removed at the same moment. Blocks.
    pub(crate) fn existing(&self, tenant: &TenantId) -> Result<Option<Arc<TenantDir>>, RuntimeError> {
        self.check()?;
        if !self.tenant_path(tenant).is_dir() {
            return Ok(None);
        }
        self.tenants.with_exclusive(tenant, |slot| {
            if !self.tenant_path(tenant).is_dir() {
                return Ok(None);
            }
            self.in_use(tenant, slot).map(Some)
        })
    }

    /// The tenants that have a directory. Blocks.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        let entries = std::fs::read_dir(self.path.join(TENANTS)).into_iter().flatten().flatten();
        entries.filter_map(|entry| TenantId::new(entry.file_name().to_str()?).ok()).collect()
    }

    /// The tenants that have intent records. An intent record means that a session is being opened or deleted, or that
    /// this was interrupted. Blocks.
    pub(crate) fn tenants_with_intents(&self) -> Vec<TenantId> {
        let marked = |tenant: &TenantId| !SessionIntents::new(&self.tenant_path(tenant)).is_empty();
        self.tenants().into_iter().filter(marked).collect()
    }

    /// Where sessions are recorded.
    pub(crate) const fn record(&self) -> JournalLocation {
        self.record
    }

    /// Removes the directory of a tenant, if sessions are recorded on the disk. It is created again when it is needed. No
    /// other task of this process can open it meanwhile. Blocks.
    pub(crate) fn remove(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        self.tenants.with_exclusive(tenant, |slot| {
            if self.record == JournalLocation::OnDisk {
                let place = self.tenant_path(tenant);
                let failed = |error: SandboxError| RuntimeError::data(&place, &error);
                let id = dir_id(&place).map_err(failed)?;
                remove_tree(&place, id).map_err(failed)?;
            }
            // Current users keep their handle to the removed directory.
            *slot = Weak::new();
            lock(&self.swept).remove(tenant);
            let removed = lock(&self.open_in_memory).remove(tenant);
            drop(removed);
            Ok(())
        })
    }

    /// The path of a tenant's directory. It is not created.
    pub(crate) fn tenant_path(&self, tenant: &TenantId) -> PathBuf {
        self.path.join(TENANTS).join(tenant.as_str())
    }

    /// The directory of a tenant, created if missing. Blocks.
    pub(crate) fn tenant(&self, tenant: &TenantId) -> Result<Arc<TenantDir>, RuntimeError> {
        self.check()?;
        self.tenants.with_exclusive(tenant, |slot| self.in_use(tenant, slot))
    }

    fn in_use(&self, tenant: &TenantId, slot: &mut Weak<TenantDir>) -> Result<Arc<TenantDir>, RuntimeError> {
        let home = self.opened(tenant, slot)?;
        if self.record == JournalLocation::InMemory {
            let before = lock(&self.open_in_memory).insert(tenant.clone(), Arc::clone(&home));
            drop(before);
        }
        Ok(home)
    }

    fn opened(&self, tenant: &TenantId, slot: &mut Weak<TenantDir>) -> Result<Arc<TenantDir>, RuntimeError> {
        let path = self.tenant_path(tenant);
        if let Some(known) = slot.upgrade().filter(|known| known.is_at(&path)) {
            return Ok(known);
        }
        let home = Arc::new(TenantDir::open(&path, self.record, self.tenants.entry_guard(tenant))?);
        // Only the first opening sweeps. The janitor removes what processes leave that die later, so that opening a
        // directory need not wait for it.
        if !lock(&self.swept).contains(tenant) {
            home.sweep()?;
            lock(&self.swept).insert(tenant.clone());
        }
        *slot = Arc::downgrade(&home);
        Ok(home)
    }

    /// Checks that the path still leads to the directory that was opened. A directory that was moved is not created again:
    /// it may come back.
    fn check(&self) -> Result<(), RuntimeError> {
        match dir_id(&self.path) {
            Ok(id) if id == self.id => Ok(()),
            Ok(_) => {
                let reason = "it is another directory than the one that was opened; put that one back";
                Err(RuntimeError::data(&self.path, &reason))
            }
            Err(error) => Err(RuntimeError::data(&self.path, &error)),
        }
    }
}

const CONTAINERS: &str = "containers";

impl TenantDir {
    fn open(path: &Path, record: JournalLocation, lease: EntryGuard<Self>) -> Result<Self, RuntimeError> {
        let refused = |error: &dyn std::fmt::Display| RuntimeError::data(path, &error);
        let data = DataDir::open_without_sweep(path).map_err(|error| refused(&error))?;
        let tenant_lock = TenantLock::new(&data.path().join("tenant.lock"));
        let pins = match record {
            JournalLocation::OnDisk => PinnedSkills::open(&data).map_err(|error| refused(&error))?,
            // Skills pinned by other processes are neither used nor counted here.
            JournalLocation::InMemory => PinnedSkills::temporary(&data).map_err(|error| refused(&error))?,
        };
        let id = dir_id(data.path()).map_err(|error| refused(&error))?;
        let (intents, connectors) = (SessionIntents::new(data.path()), Mutex::default());
        Ok(Self { id, record, pins, tenant_lock, intents, data, connectors, _lease: lease })
    }

    /// Removes what dead processes left. Blocks.
    fn sweep(&self) -> Result<(), RuntimeError> {
        self.data.sweep();
        if let Some(_exclusive_guard) = self.tenant_lock.try_exclusive()? {
            self.pins.remove_drafts().map_err(|error| RuntimeError::data(self.data.path(), &error))?;
        }
        Ok(())
    }

    /// The connector for sandboxes of this kind, created once. Blocks.
    pub(crate) fn connector(
        &self,
        kind: ExecutorKind,
        make: impl FnOnce(&DataDir) -> Result<Arc<dyn Connector>, RuntimeError>,
    ) -> Result<Arc<dyn Connector>, RuntimeError> {
        let mut connectors = lock(&self.connectors);
        if let Some(known) = connectors.get(kind.as_str()) {
            return Ok(Arc::clone(known));
        }
        let made = make(&self.data)?;
        connectors.insert(kind.as_str(), Arc::clone(&made));
        Ok(made)
    }

    /// Whether the directory still exists. Blocks briefly.
    pub(crate) fn exists(&self) -> bool {
        self.is_at(self.data.path())
    }

    fn is_at(&self, path: &Path) -> bool {
        dir_id(path).is_ok_and(|id| id == self.id)
    }

    /// Writes an intent record before a session is opened or deleted, when sessions are recorded on the disk.
    pub(crate) async fn set_intent(self: &Arc<Self>, session: SessionId) -> Result<(), RuntimeError> {
        if self.record == JournalLocation::InMemory {
            return Ok(());
        }
        let home = Arc::clone(self);
        let set = move || {
            let set = home.intents.set(session);
            set.map_err(|error| RuntimeError::data(home.intents.dir(), &error))
        };
        run_blocking("noting what is done", set).await
    }

    /// Removes the intent record.
    pub(crate) async fn clear_intent(self: &Arc<Self>, session: SessionId) {
        if self.record == JournalLocation::InMemory {
            return;
        }
        let home = Arc::clone(self);
        let cleared = run_blocking("noting what was done", move || {
            home.clear(session);
            Ok(())
        });
        if let Err(error) = cleared.await {
            tracing::debug!(%session, %error, "an intent record was not removed; the next start recovers it");
        }
    }

    /// Removes the intent record. Blocks.
    pub(crate) fn clear(&self, session: SessionId) {
        self.intents.clear(session);
    }

    /// The sessions that have an intent record.
    pub(crate) async fn intents_pending(self: &Arc<Self>) -> Result<Vec<SessionId>, RuntimeError> {
        let home = Arc::clone(self);
        let looking = move || {
            let all = home.intents.all();
            all.map_err(|error| RuntimeError::data(home.intents.dir(), &error))
        };
        run_blocking("looking for interrupted operations", looking).await
    }
}
