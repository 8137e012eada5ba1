//! The chore of counters: what tenants spent on days and in months that are long over is forgotten.
//!
//! State: none that lasts. What is over for long is charged no more: a call is charged to the day on which it ends.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::janitor::Chore;
use conjure_actors::supervision::Failure;
use conjure_actors::tenants::past_counters;
use conjure_base::Deadline;
use futures_util::future::BoxFuture;

use super::premises::Premises;
use super::steady::Steady;

/// How many tenants are listed at a time.
const PAGE: u32 = 500;

/// Forgets counters of past days and months.
pub(super) struct Counters {
    premises: Arc<Premises>,
    steady: Steady,
    since: Deadline,
}

impl Counters {
    pub(super) fn at(premises: Arc<Premises>) -> Self {
        Self { premises, steady: Steady::default(), since: Steady::beginning() }
    }
}

impl Chore for Counters {
    fn name(&self) -> &'static str {
        "counters"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(6 * 3_600)
    }

    /// How many counters were forgotten.
    fn run(&self, _: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async move {
            let records = self.premises.runtime()?.records().await?;
            let Some(now) = self.steady.now(self.since) else {
                tracing::debug!("which day it is is not known yet, as the clock was just begun or set");
                return Ok(0);
            };
            let (journal, mut forgotten, mut last) = (records.journal(), 0, None);
            loop {
                let tenants = journal.tenants(last.as_ref(), PAGE).await?;
                let Some(next) = tenants.last().cloned() else { return Ok(forgotten) };
                for tenant in tenants {
                    let past = past_counters(&journal.counter_names(&tenant).await?, now);
                    if !past.is_empty() {
                        forgotten += journal.forget_counters(&tenant, past).await?;
                    }
                }
                last = Some(next);
            }
        })
    }
}
