//! The data folder of a runtime, and those of its tenants in it.
//!
//! ```text
//! <data>/journal/                     the sessions' records
//! <data>/hosts/                       which processes have the folder
//! <data>/deleting/TENANT              a tenant that is being deleted
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
//! State: all of that, on the disk; which of it is open, in memory. After a crash, what sandboxes had is removed when a
//! tenant's folder is opened again; workspaces and skills stay until their sessions are deleted.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_base::{SessionId, TenantId};
use conjure_sandbox::{DataFolder, FolderId, SandboxError, remove_folder};

use super::error::RuntimeError;
use super::gate::Gate;
use super::marks::Marks;
use super::options::Record;
use super::outfit::blocking;
use super::pins::Pins;
use super::temporary::Temporary;

/// The data folder of a runtime.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    id: FolderId,
    record: Record,
    /// Each is opened by one at a time; nobody waits for another tenant's.
    tenants: Mutex<BTreeMap<TenantId, Arc<Mutex<Opened>>>>,
    /// What the folder goes with, where it is temporary.
    temporary: Option<Temporary>,
}

/// A tenant's folder, as far as it was opened.
type Opened = Option<Arc<TenantHome>>;

/// The data folder of a tenant. Two tenants share nothing.
#[derive(Debug)]
pub(crate) struct TenantHome {
    id: FolderId,
    record: Record,
    pub(crate) data: DataFolder,
    pub(crate) pins: Pins,
    pub(crate) gate: Gate,
    marks: Marks,
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
        Ok(Self { path, id, record, tenants: Mutex::default(), temporary })
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
        let slot = self.slot(tenant);
        let mut opened = lock(&slot);
        if !self.place(tenant).is_dir() {
            return Ok(false);
        }
        match &*opened {
            Some(known) => known.data.tidy(),
            None => {
                // Opening it does it.
                self.opened(tenant, &mut opened)?;
                *opened = None;
            }
        }
        Ok(true)
    }

    /// The folder of a tenant that has one: asking makes none, also when it is removed just then. Blocks.
    pub(crate) fn existing(&self, tenant: &TenantId) -> Result<Option<Arc<TenantHome>>, RuntimeError> {
        self.check()?;
        if !self.place(tenant).is_dir() {
            return Ok(None);
        }
        let slot = self.slot(tenant);
        let mut opened = lock(&slot);
        if !self.place(tenant).is_dir() {
            return Ok(None);
        }
        self.opened(tenant, &mut opened).map(Some)
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
        let slot = self.slot(tenant);
        let mut opened = lock(&slot);
        if self.record == Record::OnDisk {
            let place = self.place(tenant);
            let failed = |error: SandboxError| RuntimeError::data(&place, &error);
            let id = FolderId::of(&place).map_err(failed)?;
            remove_folder(&place, id).map_err(failed)?;
        }
        *opened = None;
        lock(&self.tenants).remove(tenant);
        Ok(())
    }

    /// Where the folder of a tenant lies. Asking makes none.
    pub(crate) fn place(&self, tenant: &TenantId) -> PathBuf {
        self.path.join(TENANTS).join(tenant.as_str())
    }

    /// The folder of a tenant, opened once. Blocks.
    pub(crate) fn tenant(&self, tenant: &TenantId) -> Result<Arc<TenantHome>, RuntimeError> {
        self.check()?;
        let slot = self.slot(tenant);
        let mut opened = lock(&slot);
        self.opened(tenant, &mut opened)
    }

    fn slot(&self, tenant: &TenantId) -> Arc<Mutex<Opened>> {
        Arc::clone(lock(&self.tenants).entry(tenant.clone()).or_default())
    }

    fn opened(&self, tenant: &TenantId, opened: &mut Opened) -> Result<Arc<TenantHome>, RuntimeError> {
        let path = self.place(tenant);
        if let Some(known) = opened.as_ref().filter(|known| known.is_at(&path)) {
            return Ok(Arc::clone(known));
        }
        let home = Arc::new(TenantHome::open(&path, self.record)?);
        *opened = Some(Arc::clone(&home));
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
    fn open(path: &Path, record: Record) -> Result<Self, RuntimeError> {
        let refused = |error: &dyn std::fmt::Display| RuntimeError::data(path, &error);
        let data = DataFolder::open(path).map_err(|error| refused(&error))?;
        let gate = Gate::at(&data.path().join("gate.lock"));
        let pins = match record {
            Record::OnDisk => Pins::open(&data).map_err(|error| refused(&error))?,
            // What others recorded is none of its business, and theirs not to be counted.
            Record::InMemory => Pins::temporary(&data).map_err(|error| refused(&error))?,
        };
        if let Some(_alone) = gate.try_alone()? {
            pins.clear().map_err(|error| refused(&error))?;
        }
        let id = FolderId::of(data.path()).map_err(|error| refused(&error))?;
        Ok(Self { id, record, pins, gate, marks: Marks::of(data.path()), data })
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
