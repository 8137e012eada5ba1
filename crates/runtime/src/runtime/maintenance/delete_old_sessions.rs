//! The maintenance task that deletes sessions without new events for longer than the retention time.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::maintenance::MaintenanceTask;
use conjure_actors::supervision::Failure;
use conjure_base::{Clock as _, Deadline, SystemClock, TenantId, Timestamp};
use conjure_journal::{SessionInfo, SessionKey};
use futures_util::future::BoxFuture;

use crate::runtime::handle::Runtime;
use crate::runtime::maintenance::clock_check::ClockCheck;
use crate::runtime::maintenance::context::MaintenanceContext;

/// How many sessions and tenants are listed at a time.
const PAGE: u32 = 500;

/// The start of 2020 in milliseconds since 1970. An earlier time comes from a machine whose clock was not set.
const EARLIEST_PLAUSIBLE: u64 = 1_577_836_800_000;

/// Deletes sessions that were unused for longer than the retention time.
pub(super) struct DeleteOldSessions {
    context: Arc<MaintenanceContext>,
    max_age: Duration,
    clock_check: ClockCheck,
}

impl DeleteOldSessions {
    pub(super) fn new(context: Arc<MaintenanceContext>, time: Duration) -> Self {
        Self { context, max_age: time, clock_check: ClockCheck::new() }
    }

    async fn delete_old(&self, runtime: &Runtime, now: Timestamp) -> Result<u64, Failure> {
        let records = runtime.session_reader().await?;
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
                        // Other deletions took time: the session may have been used meanwhile.
                        let events = match records.info(&key).await {
                            Ok(info) if self.is_old(runtime, &tenant, &info, now) => info.events,
                            _ => continue,
                        };
                        // The deletion fails if the session was used meanwhile.
                        match runtime.delete_unchanged(key, events).await {
                            Ok(()) => deleted += 1,
                            // It may be in use again, or already deleted. The other sessions must not wait for it.
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
        let is_here = || runtime.inner.tree.contains(&SessionKey::new(tenant.clone(), info.session));
        is_dated(info, now) && now.duration_since(info.updated) > self.max_age && !is_leased && !is_here()
    }
}

/// Whether the time of a session's last event is plausible.
pub(super) fn is_dated(info: &SessionInfo, now: Timestamp) -> bool {
    info.updated.millis() > EARLIEST_PLAUSIBLE && now > info.updated
}

impl MaintenanceTask for DeleteOldSessions {
    fn name(&self) -> &'static str {
        "retention"
    }

    /// A tenth of the retention time, between a minute and an hour.
    fn interval(&self) -> Duration {
        (self.max_age / 10).clamp(Duration::from_secs(60), Duration::from_secs(3_600))
    }

    /// Returns how many sessions were deleted.
    fn run(&self, deadline: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async move {
            let runtime = self.context.runtime()?;
            let Some(now) = self.clock_check.now() else { return Ok(0) };
            tokio::select! {
                biased;
                deleted = self.delete_old(&runtime, now) => deleted,
                // Deletions that have started continue. The next run deletes the rest.
                () = SystemClock.sleep_until(deadline) => Err("there is more than could be deleted in time".into()),
            }
        })
    }
}
