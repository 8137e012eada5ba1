//! The data folder of a runtime, and those of its tenants in it.
//!
//! ```text
//! <data>/journal/                     the sessions' records
//! <data>/hosts/                       which processes have the folder
//! <data>/deleting/TENANT              a tenant that is being deleted
//! <data>/remains/                     what deleted sessions have at models' services yet
//! <data>/containers                   says that sessions had containers, so that each start looks for such as are left
//! <data>/pool/                        the folders of sandboxes that are nobody's yet, and of those that sessions took
//! <data>/tenants/TENANT/              the data folder of a tenant: its store, its sandboxes, its workspaces
//! <data>/tenants/TENANT/workspaces/SESSION/workspace   where a session works
//! <data>/tenants/TENANT/skills/DIGEST/NAME/            a skill as sessions were opened with it
//! <data>/tenants/TENANT/artifacts/SESSION/             links to the contents of a session's artifacts
//! <data>/tenants/TENANT/under-way/SESSION              a session that is being opened or deleted
//! <data>/tenants/TENANT/gate.lock                      held by who opens, deletes, or removes what no session has
//! ```
//!
//! State: all of that, on the disk; which of it is open, in memory. A tenant's folder is open while a session of the tenant lives, or
//! somebody opens, deletes or tidies something in it: an idle tenant has nothing open. After a crash, what sandboxes had is removed when
//! a process opens the tenant's folder for the first time; workspaces and skills stay until their sessions are deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use conjure_base::{SessionId, TenantId};
use conjure_sandbox::{Connector, DataFolder, FolderId, SandboxError, remove_folder};

use super::error::RuntimeError;
use super::gate::Gate;
use super::marks::Marks;
use super::options::Record;
use super::outfit::blocking;
use super::pins::Pins;
use super::slots::{Lease, Slots};
use super::temporary::Temporary;
use crate::config::ExecutorKind;

/// The data folder of a runtime.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    id: FolderId,
    record: Record,
    tenants: Slots<TenantHome>,
    /// All that were opened, where nothing is recorded on the disk: the skills of sessions that are put away go with them.
    kept: Mutex<BTreeMap<TenantId, Arc<TenantHome>>>,
    /// Whose folders were rid of what dead hosts left since this process began.
    tidied: Mutex<BTreeSet<TenantId>>,
    /// What the folder goes with, where it is temporary.
    temporary: Option<Temporary>,
}

/// The data folder of a tenant. Two tenants share nothing. Whoever works in it has it: it is closed with the last of them.
#[derive(Debug)]
pub(crate) struct TenantHome {
    id: FolderId,
    record: Record,
    pub(crate) data: DataFolder,
    pub(crate) pins: Pins,
    pub(crate) gate: Gate,
    marks: Marks,
    /// What makes sandboxes in it, by kind.
    connectors: Mutex<BTreeMap<&'static str, Arc<dyn Connector>>>,
    _lease: Lease<Self>,
}

impl Home {
    /// The data in this folder, which is made where it is missing, for its owner alone. Blocks.
    pub(crate) fn open(path: &Path, record: Record) -> Result<Self, RuntimeError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        let path =
            made.and_then(|()| path.canonicalize()).map_err(|error| RuntimeError::data(path, &error))?;
        Self::at(path, record, None)
    }

    /// A new one, which goes with its last user. Blocks.
    pub(crate) fn temporary() -> Result<Self, RuntimeError> {
        let temporary = Temporary::make(&std::env::temp_dir())?;
        Self::at(temporary.path().to_owned(), Record::InMemory, Some(temporary))
    }

    fn at(path: PathBuf, record: Record, temporary: Option<Temporary>) -> Result<Self, RuntimeError> {
        let id = FolderId::of(&path).map_err(|error| RuntimeError::data(&path, &error))?;
        let (tenants, kept, tidied) = Default::default();
        Ok(Self { path, id, record, tenants, kept, tidied, temporary })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the journal is kept, on the disk.
    pub(crate) fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// Lets a temporary folder stay, of which something is kept.
    pub(crate) fn keep(&self) {
        if let Some(temporary) = &self.temporary {
            temporary.keep();
        }
    }

    /// Notes that sessions have containers. Blocks.
    pub(crate) fn note_containers(&self) -> Result<(), RuntimeError> {
        let path = self.path.join(CONTAINERS);
        let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        made.map(drop).map_err(|error| RuntimeError::data(&path, &error))
    }

    /// Whether sessions had containers, of this process or an earlier one. Blocks for a moment.
    #[cfg(feature = "docker")]
    pub(crate) fn had_containers(&self) -> bool {
        self.path.join(CONTAINERS).exists()
    }

    /// Removes what dead hosts left of a tenant, where it has a folder. One that nobody has open here is let go of again: there may be
    /// many. Blocks.
    pub(crate) fn tidy(&self, tenant: &TenantId) -> Result<bool, RuntimeError> {
        self.check()?;
        self.tenants.alone(tenant, |slot| {
            if !self.place(tenant).is_dir() {
                return Ok(false);
            }
            let is_done = lock(&self.tidied).contains(tenant);
            let home = self.opened(tenant, slot)?;
            // Else opening it did it.
            if is_done {
                home.data.tidy();
            }
            Ok(true)
        })
    }

    /// The folder of a tenant that has one: asking makes none, also when it is removed just then. Blocks.
    pub(crate) fn existing(&self, tenant: &TenantId) -> Result<Option<Arc<TenantHome>>, RuntimeError> {
        self.check()?;
        if !self.place(tenant).is_dir() {
            return Ok(None);
        }
        self.tenants.alone(tenant, |slot| {
            if !self.place(tenant).is_dir() {
                return Ok(None);
            }
            self.in_use(tenant, slot).map(Some)
        })
    }

    /// The tenants that have a folder. Blocks.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        let entries = std::fs::read_dir(self.path.join(TENANTS)).into_iter().flatten().flatten();
        entries.filter_map(|entry| TenantId::new(entry.file_name().to_str()?).ok()).collect()
    }

    /// Those of whose sessions something is under way, or broke off. Blocks.
    pub(crate) fn marked(&self) -> Vec<TenantId> {
        let marked = |tenant: &TenantId| !Marks::of(&self.place(tenant)).is_empty();
        self.tenants().into_iter().filter(marked).collect()
    }

    /// Whether what lies here is found again after a restart.
    pub(crate) const fn record(&self) -> Record {
        self.record
    }

    /// Removes the folder of a tenant, where it is found again after a restart; it is opened anew where it is needed. Nobody in
    /// this process opens it meanwhile. Blocks.
    pub(crate) fn remove(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        self.tenants.alone(tenant, |slot| {
            if self.record == Record::OnDisk {
                let place = self.place(tenant);
                let failed = |error: SandboxError| RuntimeError::data(&place, &error);
                let id = FolderId::of(&place).map_err(failed)?;
                remove_folder(&place, id).map_err(failed)?;
            }
            // Whoever has it still has what is gone.
            *slot = Weak::new();
            lock(&self.tidied).remove(tenant);
            let kept = lock(&self.kept).remove(tenant);
            drop(kept);
            Ok(())
        })
    }

    /// Where the folder of a tenant lies. Asking makes none.
    pub(crate) fn place(&self, tenant: &TenantId) -> PathBuf {
        self.path.join(TENANTS).join(tenant.as_str())
    }

    /// The folder of a tenant, made where there is none. Blocks.
    pub(crate) fn tenant(&self, tenant: &TenantId) -> Result<Arc<TenantHome>, RuntimeError> {
        self.check()?;
        self.tenants.alone(tenant, |slot| self.in_use(tenant, slot))
    }

    fn in_use(
        &self,
        tenant: &TenantId,
        slot: &mut Weak<TenantHome>,
    ) -> Result<Arc<TenantHome>, RuntimeError> {
        let home = self.opened(tenant, slot)?;
        if self.record == Record::InMemory {
            let before = lock(&self.kept).insert(tenant.clone(), Arc::clone(&home));
            drop(before);
        }
        Ok(home)
    }

    fn opened(
        &self,
        tenant: &TenantId,
        slot: &mut Weak<TenantHome>,
    ) -> Result<Arc<TenantHome>, RuntimeError> {
        let path = self.place(tenant);
        if let Some(known) = slot.upgrade().filter(|known| known.is_at(&path)) {
            return Ok(known);
        }
        let home = Arc::new(TenantHome::open(&path, self.record, self.tenants.lease(tenant))?);
        // What dead hosts leave after that is the janitor's: whoever opens the folder of an idle tenant need not wait for it.
        if !lock(&self.tidied).contains(tenant) {
            home.tidy()?;
            lock(&self.tidied).insert(tenant.clone());
        }
        *slot = Arc::downgrade(&home);
        Ok(home)
    }

    /// Looks whether the folder is still the one that was opened. What lies elsewhere now is not made anew in its place: it may
    /// come back.
    fn check(&self) -> Result<(), RuntimeError> {
        match FolderId::of(&self.path) {
            Ok(id) if id == self.id => Ok(()),
            Ok(_) => {
                let reason = "it is another folder than the one that was opened; put that one back";
                Err(RuntimeError::data(&self.path, &reason))
            }
            Err(error) => Err(RuntimeError::data(&self.path, &error)),
        }
    }
}

const TENANTS: &str = "tenants";
const CONTAINERS: &str = "containers";

impl TenantHome {
    fn open(path: &Path, record: Record, lease: Lease<Self>) -> Result<Self, RuntimeError> {
        let refused = |error: &dyn std::fmt::Display| RuntimeError::data(path, &error);
        let data = DataFolder::open_untidied(path).map_err(|error| refused(&error))?;
        let gate = Gate::at(&data.path().join("gate.lock"));
        let pins = match record {
            Record::OnDisk => Pins::open(&data).map_err(|error| refused(&error))?,
            // What others recorded is none of its business, and theirs not to be counted.
            Record::InMemory => Pins::temporary(&data).map_err(|error| refused(&error))?,
        };
        let id = FolderId::of(data.path()).map_err(|error| refused(&error))?;
        let (marks, connectors) = (Marks::of(data.path()), Mutex::default());
        Ok(Self { id, record, pins, gate, marks, data, connectors, _lease: lease })
    }

    /// Removes what dead hosts left. Blocks.
    fn tidy(&self) -> Result<(), RuntimeError> {
        self.data.tidy();
        if let Some(_alone) = self.gate.try_alone()? {
            self.pins.clear().map_err(|error| RuntimeError::data(self.data.path(), &error))?;
        }
        Ok(())
    }

    /// What makes sandboxes of this kind in it, made once. Blocks.
    pub(crate) fn connector(
        &self,
        kind: ExecutorKind,
        make: impl FnOnce(&DataFolder) -> Result<Arc<dyn Connector>, RuntimeError>,
    ) -> Result<Arc<dyn Connector>, RuntimeError> {
        let mut connectors = lock(&self.connectors);
        if let Some(known) = connectors.get(kind.as_str()) {
            return Ok(Arc::clone(known));
        }
        let made = make(&self.data)?;
        connectors.insert(kind.as_str(), Arc::clone(&made));
        Ok(made)
    }

    /// Whether it is still there. Blocks for a moment.
    pub(crate) fn is_there(&self) -> bool {
        self.is_at(self.data.path())
    }

    fn is_at(&self, path: &Path) -> bool {
        FolderId::of(path).is_ok_and(|id| id == self.id)
    }

    /// Notes that something is done with a session that is recorded on the disk.
    pub(crate) async fn mark(self: &Arc<Self>, session: SessionId) -> Result<(), RuntimeError> {
        if self.record == Record::InMemory {
            return Ok(());
        }
        let home = Arc::clone(self);
        let set = move || {
            let set = home.marks.set(session);
            set.map_err(|error| RuntimeError::data(home.marks.folder(), &error))
        };
        blocking("noting what is done", set).await
    }

    /// It was done.
    pub(crate) async fn unmark(self: &Arc<Self>, session: SessionId) {
        if self.record == Record::InMemory {
            return;
        }
        let home = Arc::clone(self);
        let cleared = blocking("noting what was done", move || {
            home.clear(session);
            Ok(())
        });
        if let Err(error) = cleared.await {
            tracing::debug!(%session, %error, "a mark is left; the next start looks after it");
        }
    }

    /// The same. Blocks.
    pub(crate) fn clear(&self, session: SessionId) {
        self.marks.clear(session);
    }

    /// The sessions of which something is under way, or broke off.
    pub(crate) async fn marked(self: &Arc<Self>) -> Result<Vec<SessionId>, RuntimeError> {
        let home = Arc::clone(self);
        let looking = move || {
            let all = home.marks.all();
            all.map_err(|error| RuntimeError::data(home.marks.folder(), &error))
        };
        blocking("looking for what broke off", looking).await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
