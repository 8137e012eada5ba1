//! The chore of the journal: large bodies that nothing refers to any more.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::janitor::Chore;
use conjure_actors::supervision::Failure;
use conjure_base::Deadline;
use futures_util::future::BoxFuture;

use super::premises::Premises;

/// Frees what nothing in the journal refers to.
pub(super) struct Journal(Arc<Premises>);

impl Journal {
    pub(super) const fn at(premises: Arc<Premises>) -> Self {
        Self(premises)
    }
}

impl Chore for Journal {
    fn name(&self) -> &'static str {
        "journal"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(3_600)
    }

    /// How many bodies were freed.
    fn run(&self, _: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async {
            let records = self.0.runtime()?.records().await?;
            Ok(records.journal().sweep().await?.blobs)
        })
    }
}
