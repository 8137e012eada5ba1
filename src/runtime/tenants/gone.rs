//! Which tenants are being deleted, noted on the disk before anything of theirs is.
//!
//! ```text
//! <data>/deleting/TENANT    empty
//! ```
//!
//! State: these files. As long as there is one, nobody opens or finds sessions of the tenant, in whichever process; the deletion
//! removes it when nothing of the tenant is left. One that a crash left is all that the next start goes by.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_base::TenantId;

use super::super::error::RuntimeError;
use super::super::handle::Runtime;
use super::super::outfit::blocking;

/// The tenants that are being deleted. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Gone {
    folder: PathBuf,
    /// One tenant at a time is deleted in this process.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Gone {
    /// Those of this data folder.
    pub(crate) fn of(data: &Path) -> Self {
        Self { folder: data.join("deleting"), turn: Arc::default() }
    }

    pub(crate) const fn turn(&self) -> &Arc<tokio::sync::Mutex<()>> {
        &self.turn
    }

    /// Refuses what is asked for a tenant that is being deleted. Blocks for a moment.
    pub(crate) fn check(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        if self.folder.join(tenant.as_str()).exists() {
            return Err(RuntimeError::BeingDeleted { tenant: tenant.clone() });
        }
        Ok(())
    }

    /// Notes that a tenant is being deleted. Blocks.
    pub(crate) fn begin(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        let path = self.folder.join(tenant.as_str());
        let noted = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).and_then(|()| {
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            // It is on the disk before anything is gone.
            File::open(&self.folder)?.sync_all()
        });
        noted.map_err(|error| RuntimeError::data(&path, &error))
    }

    /// Nothing of the tenant is left. Blocks.
    pub(crate) fn end(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        let path = self.folder.join(tenant.as_str());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RuntimeError::data(&path, &error)),
            _ => Ok(()),
        }
    }

    /// All of them. Blocks.
    fn all(&self) -> Result<Vec<TenantId>, RuntimeError> {
        let unusable = |error: io::Error| RuntimeError::data(&self.folder, &error);
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(unusable)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(unusable)?.file_name();
            found.extend(name.to_str().and_then(|name| TenantId::new(name).ok()));
        }
        Ok(found)
    }
}

/// Completes, at the start, the deletions that broke off. What cannot be completed is told, and left to the next start.
pub(crate) async fn complete_tenants(runtime: &Runtime) -> Result<(), RuntimeError> {
    let gone = runtime.inner.outfitter.gone().clone();
    let tenants = blocking("looking for tenants that were being deleted", move || gone.all()).await?;
    for tenant in tenants {
        match runtime.remove_tenant(&tenant).await {
            Ok(_) => tracing::info!(%tenant, "completed the deletion of a tenant"),
            Err(error) => tracing::warn!(%tenant, %error, "what is left of a tenant is left"),
        }
    }
    Ok(())
}
