//! The chore of retention: sessions that nothing was recorded of for so long are deleted, with all that is theirs.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::janitor::Chore;
use conjure_actors::supervision::Failure;
use conjure_base::{Clock as _, Deadline, SystemClock, TenantId, Timestamp};
use conjure_journal::{SessionInfo, SessionKey};
use futures_util::future::BoxFuture;

use super::super::handle::Runtime;
use super::premises::Premises;
use super::steady::Steady;

/// How many sessions and tenants are listed at a time.
const PAGE: u32 = 500;

/// Nothing was recorded before this, in milliseconds since 1970: 2020 began. A machine whose clock was not set yet said so.
const BIRTH: u64 = 1_577_836_800_000;

/// Deletes sessions that have rested for longer than they are kept.
pub(super) struct Retention {
    premises: Arc<Premises>,
    time: Duration,
    steady: Steady,
    since: Deadline,
}

impl Retention {
    pub(super) fn at(premises: Arc<Premises>, time: Duration) -> Self {
        Self { premises, time, steady: Steady::default(), since: Steady::beginning() }
    }

    async fn delete_old(&self, runtime: &Runtime, now: Timestamp) -> Result<u64, Failure> {
        let records = runtime.records().await?;
        let (mut deleted, mut failed, mut last) = (0, None, None);
        loop {
            let tenants = records.journal().tenants(last.as_ref(), PAGE).await?;
            let Some(next) = tenants.last().cloned() else { break };
            last = Some(next);
            for tenant in tenants {
                let mut after = None;
                loop {
                    let page = records.journal().sessions(&tenant, after, PAGE).await?;
                    let old = page.sessions.iter().filter(|info| self.is_old(runtime, &tenant, info, now));
                    for info in old {
                        let key = SessionKey::new(tenant.clone(), info.session);
                        // Others took their time: it may have been taken up meanwhile.
                        let events = match records.info(&key).await {
                            Ok(info) if self.is_old(runtime, &tenant, &info, now) => info.events,
                            _ => continue,
                        };
                        // Or it is just now, which only the journal can tell.
                        match runtime.delete_unchanged(key, events).await {
                            Ok(()) => deleted += 1,
                            // It may be in use again, or be gone. Others are not to wait for it.
                            Err(error) => failed = Some(error),
                        }
                    }
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
            }
        }
        match failed {
            Some(error) if deleted == 0 => Err(error.into()),
            _ => Ok(deleted),
        }
    }

    fn is_old(&self, runtime: &Runtime, tenant: &TenantId, info: &SessionInfo, now: Timestamp) -> bool {
        let is_leased = info.lease.as_ref().is_some_and(|lease| lease.until > now);
        let is_here = || runtime.inner.tree.knows(&SessionKey::new(tenant.clone(), info.session));
        is_dated(info, now) && now.since(info.updated) > self.time && !is_leased && !is_here()
    }
}

/// Whether it can be believed when something was recorded last.
pub(super) fn is_dated(info: &SessionInfo, now: Timestamp) -> bool {
    info.updated.millis() > BIRTH && now > info.updated
}

impl Chore for Retention {
    fn name(&self) -> &'static str {
        "retention"
    }

    /// A tenth of the time that they are kept, an hour at most and a minute at least.
    fn every(&self) -> Duration {
        (self.time / 10).clamp(Duration::from_secs(60), Duration::from_secs(3_600))
    }

    /// How many were deleted.
    fn run(&self, deadline: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async move {
            let runtime = self.premises.runtime()?;
            let Some(now) = self.steady.now(self.since) else {
                tracing::debug!("how old sessions are is not known yet, as the clock was just begun or set");
                return Ok(0);
            };
            tokio::select! {
                biased;
                deleted = self.delete_old(&runtime, now) => deleted,
                // What was begun goes on; the rest is for the next time.
                () = SystemClock.sleep_until(deadline) => Err("there is more than could be deleted in time".into()),
            }
        })
    }
}
