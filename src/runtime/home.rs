//! The data folder of a runtime, and those of its tenants in it.
//!
//! ```text
//! <data>/journal/                     the sessions' records
//! <data>/hosts/                       which processes have the folder
//! <data>/tenants/TENANT/              the data folder of a tenant: its store, its sandboxes, its workspaces
//! <data>/tenants/TENANT/workspaces/SESSION/workspace   where a session works
//! <data>/tenants/TENANT/skills/DIGEST/NAME/            a skill as sessions were opened with it
//! ```
//!
//! State: all of that, on the disk; which of it is open, in memory. After a crash, what sandboxes had is removed when a
//! tenant's folder is opened again; workspaces and skills stay until their sessions are deleted.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use conjure_base::TenantId;
use conjure_sandbox::DataFolder;

use super::error::RuntimeError;
use super::pins::Pins;

/// The data folder of a runtime.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    tenants: Mutex<BTreeMap<TenantId, Arc<TenantHome>>>,
    /// What the folder goes with, where it is temporary.
    _temporary: Option<tempfile::TempDir>,
}

/// The data folder of a tenant. Two tenants share nothing.
#[derive(Debug)]
pub(crate) struct TenantHome {
    pub(crate) data: DataFolder,
    pub(crate) pins: Pins,
}

impl Home {
    /// The data in this folder, which is made where it is missing, for its owner alone. Blocks.
    pub(crate) fn open(path: &Path) -> Result<Self, RuntimeError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        let path = made.and_then(|()| path.canonicalize()).map_err(|error| unusable(path, &error))?;
        Ok(Self { path, tenants: Mutex::default(), _temporary: None })
    }

    /// A new one, which goes with its last user. Blocks.
    pub(crate) fn temporary() -> Result<Self, RuntimeError> {
        let around = std::env::temp_dir();
        // Its mode is 0700.
        let folder = tempfile::Builder::new()
            .prefix("conjure-")
            .tempdir_in(&around)
            .map_err(|error| unusable(&around, &error))?;
        let path = folder.path().canonicalize().map_err(|error| unusable(folder.path(), &error))?;
        Ok(Self { path, tenants: Mutex::default(), _temporary: Some(folder) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the journal is kept, on the disk.
    pub(crate) fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// The folder of a tenant that has one: asking makes none. Blocks.
    pub(crate) fn existing(&self, tenant: &TenantId) -> Result<Option<Arc<TenantHome>>, RuntimeError> {
        if !self.place(tenant).is_dir() {
            return Ok(None);
        }
        self.tenant(tenant).map(Some)
    }

    fn place(&self, tenant: &TenantId) -> PathBuf {
        self.path.join("tenants").join(tenant.as_str())
    }

    /// The folder of a tenant, opened once. Blocks.
    pub(crate) fn tenant(&self, tenant: &TenantId) -> Result<Arc<TenantHome>, RuntimeError> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tenants.get(tenant) {
            return Ok(Arc::clone(known));
        }
        let path = self.place(tenant);
        let refused = |error: &dyn std::fmt::Display| RuntimeError::Data {
            path: path.clone(),
            reason: error.to_string(),
        };
        let data = DataFolder::open(&path).map_err(|error| refused(&error))?;
        let home = Arc::new(TenantHome { pins: Pins::open(&data).map_err(|error| refused(&error))?, data });
        tenants.insert(tenant.clone(), Arc::clone(&home));
        Ok(home)
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> RuntimeError {
    RuntimeError::Data { path: path.to_owned(), reason: error.to_string() }
}
