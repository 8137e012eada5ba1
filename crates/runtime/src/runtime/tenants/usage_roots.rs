//! The places on the disk to measure for a tenant: its data directory, and its part of the journal.
//!
//! State: the journal, once it is open.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use conjure_actors::tenants::TenantAccounts;
use conjure_base::TenantId;

use crate::runtime::data::data_layout::RuntimeDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::task_set::run_blocking;
use crate::runtime::tenants::disk_measure::{DiskUsage, MeasuredUsage, measure};

/// The places of all tenants.
pub(super) struct UsageRoots {
    home: Arc<RuntimeDir>,
    journal: OnceLock<JournalUsage>,
}

/// A journal on the disk.
struct JournalUsage {
    tenancy: TenantAccounts,
    /// The directory that has one directory of large bodies for each tenant.
    blobs_dir: PathBuf,
}

/// The places of one tenant.
pub(super) struct TenantRoots {
    dirs: Vec<PathBuf>,
    journal: Option<(TenantAccounts, TenantId)>,
}

impl UsageRoots {
    pub(super) const fn new(home: Arc<RuntimeDir>) -> Self {
        Self { home, journal: OnceLock::new() }
    }

    /// Counts the journal from now on, with large bodies in this directory.
    pub(super) fn set_journal(&self, tenancy: TenantAccounts, blobs_dir: PathBuf) {
        // There is one journal, even if it is opened several times.
        let _ = self.journal.set(JournalUsage { tenancy, blobs_dir });
    }

    pub(super) fn roots(&self, tenant: &TenantId) -> TenantRoots {
        let mut roots = TenantRoots::from(self.home.tenant_path(tenant));
        if let Some(JournalUsage { tenancy, blobs_dir }) = self.journal.get() {
            roots.dirs.push(blobs_dir.join(tenant.as_str()));
            roots.journal = Some((tenancy.clone(), tenant.clone()));
        }
        roots
    }
}

impl From<PathBuf> for TenantRoots {
    fn from(dir: PathBuf) -> Self {
        Self { dirs: vec![dir], journal: None }
    }
}

impl TenantRoots {
    /// Measures these places.
    pub(super) async fn measure(self) -> Result<MeasuredUsage, RuntimeError> {
        let Self { dirs, journal } = self;
        let found = run_blocking("measuring what a tenant has on the disk", move || {
            let found = dirs.iter().map(|dir| measure(dir));
            Ok(found.fold(MeasuredUsage::default(), MeasuredUsage::plus))
        })
        .await?;
        let Some((tenancy, tenant)) = journal else { return Ok(found) };
        let bytes = tenancy.recorded_bytes(&tenant).await?;
        Ok(found.plus(MeasuredUsage::complete(DiskUsage { bytes, inodes: 0 })))
    }
}
