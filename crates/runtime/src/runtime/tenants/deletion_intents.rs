//! Intent records of the tenants that are being deleted. Each is written before anything of its tenant is deleted.
//!
//! ```text
//! <data>/deleting/TENANT    empty
//! ```
//!
//! State: these files. While one exists, no process opens or finds sessions of the tenant. The deletion removes it when
//! nothing of the tenant is left. After a crash, the next start finds it and completes the deletion.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_base::TenantId;
use conjure_fs::{ensure_dir, ensure_file, ignore_absent, names_in, sync_dir};

use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::task_set::run_blocking;

/// The tenants that are being deleted. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct TenantDeletions {
    dir: PathBuf,
    /// Only one tenant at a time is deleted in this process.
    exclusive: Arc<tokio::sync::Mutex<()>>,
}

impl TenantDeletions {
    /// The records in this data directory.
    pub(crate) fn new(data: &Path) -> Self {
        Self { dir: data.join("deleting"), exclusive: Arc::default() }
    }

    pub(crate) const fn exclusive(&self) -> &Arc<tokio::sync::Mutex<()>> {
        &self.exclusive
    }

    /// Fails if the tenant is being deleted. Blocks briefly.
    pub(crate) fn check(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        if self.dir.join(tenant.as_str()).exists() {
            return Err(RuntimeError::TenantBeingDeleted { tenant: tenant.clone() });
        }
        Ok(())
    }

    /// Writes the intent record of a tenant's deletion. Blocks.
    pub(crate) fn begin(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        let path = self.dir.join(tenant.as_str());
        let written = ensure_dir(&self.dir).and_then(|()| {
            ensure_file(&path)?;
            // The record is on the disk before anything is deleted.
            sync_dir(&self.dir)
        });
        written.map_err(|error| RuntimeError::data(&path, &error))
    }

    /// Removes the intent record after everything of the tenant is deleted. Blocks.
    pub(crate) fn end(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        let path = self.dir.join(tenant.as_str());
        ignore_absent(fs::remove_file(&path)).map(drop).map_err(|error| RuntimeError::data(&path, &error))
    }

    /// All tenants with a record. Blocks.
    fn all(&self) -> Result<Vec<TenantId>, RuntimeError> {
        let names = names_in(&self.dir).map_err(|error| RuntimeError::data(&self.dir, &error))?;
        Ok(names.into_iter().filter_map(|name| TenantId::new(name).ok()).collect())
    }
}

/// Completes interrupted deletions at the start. Failures are logged, and the next start tries again.
pub(crate) async fn recover_tenant_deletions(runtime: &Runtime) -> Result<(), RuntimeError> {
    let deletions = runtime.inner.factory.deletions.clone();
    let tenants =
        run_blocking("looking for tenants that were being deleted", move || deletions.all()).await?;
    for tenant in tenants {
        match runtime.remove_tenant(&tenant).await {
            Ok(_) => tracing::info!(%tenant, "completed the deletion of a tenant"),
            Err(error) => tracing::warn!(%tenant, %error, "the deletion of a tenant was not completed"),
        }
    }
    Ok(())
}
