//! The chore of the tenants' folders: what broke off, and contents that nobody used for a month.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::janitor::Chore;
use conjure_actors::supervision::Failure;
use conjure_base::Deadline;
use futures_util::future::BoxFuture;

use super::super::broken_off::complete;
use super::super::options::Record;
use super::super::sweep::tidy_folders;
use super::premises::Premises;

/// Tidies the tenants' folders.
pub(super) struct Folders(Arc<Premises>);

impl Folders {
    pub(super) const fn at(premises: Arc<Premises>) -> Self {
        Self(premises)
    }
}

impl Chore for Folders {
    fn name(&self) -> &'static str {
        "folders"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(3_600)
    }

    /// How many tenants' folders were looked at.
    fn run(&self, _: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async {
            let runtime = self.0.runtime()?;
            let tidied = tidy_folders(&self.0.home).await?;
            // Who keeps nothing does not know what others have recorded.
            if self.0.home.record() == Record::OnDisk {
                complete(&self.0.home, &runtime.records().await?).await?;
            }
            Ok(tidied)
        })
    }
}
