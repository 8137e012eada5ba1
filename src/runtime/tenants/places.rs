//! Where tenants have something on the disk: each its data folder, and a part of the journal.
//!
//! State: which journal is asked, from when it is open on.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use conjure_actors::tenants::Tenancy;
use conjure_base::TenantId;

use super::super::error::RuntimeError;
use super::super::home::Home;
use super::super::outfit::blocking;
use super::meter::{DiskUsage, Found, measure};

/// Where all of them have something.
pub(super) struct Places {
    home: Arc<Home>,
    recorded: OnceLock<Recorded>,
}

/// A journal on the disk.
struct Recorded {
    tenancy: Tenancy,
    /// The folder of the folders in which tenants' large bodies lie.
    bodies: PathBuf,
}

/// Where one of them has.
pub(super) struct Place {
    folders: Vec<PathBuf>,
    recorded: Option<(Tenancy, TenantId)>,
}

impl Places {
    pub(super) const fn new(home: Arc<Home>) -> Self {
        Self { home, recorded: OnceLock::new() }
    }

    /// What is recorded counts from now on, with large bodies in this folder.
    pub(super) fn count_recorded(&self, tenancy: Tenancy, bodies: PathBuf) {
        // There is one journal, however often it is opened.
        let _ = self.recorded.set(Recorded { tenancy, bodies });
    }

    pub(super) fn of(&self, tenant: &TenantId) -> Place {
        let mut place = Place::from(self.home.place(tenant));
        if let Some(Recorded { tenancy, bodies }) = self.recorded.get() {
            place.folders.push(bodies.join(tenant.as_str()));
            place.recorded = Some((tenancy.clone(), tenant.clone()));
        }
        place
    }
}

impl From<PathBuf> for Place {
    fn from(folder: PathBuf) -> Self {
        Self { folders: vec![folder], recorded: None }
    }
}

impl Place {
    /// What lies there.
    pub(super) async fn measure(self) -> Result<Found, RuntimeError> {
        let Self { folders, recorded } = self;
        let found = blocking("measuring what a tenant has on the disk", move || {
            let found = folders.iter().map(|folder| measure(folder));
            Ok(found.fold(Found::default(), Found::and))
        })
        .await?;
        let Some((tenancy, tenant)) = recorded else { return Ok(found) };
        let bytes = tenancy.recorded_bytes(&tenant).await?;
        Ok(found.and(Found::whole(DiskUsage { bytes, inodes: 0 })))
    }
}
