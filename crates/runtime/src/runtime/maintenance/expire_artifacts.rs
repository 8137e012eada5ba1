//! The maintenance task that expires the artifacts of idle sessions.
//!
//! The actor of a session does the same when the session is used. It records that the artifacts are cleared, and unpins
//! their contents. This task starts no actor and takes no lease. It inspects only passivated sessions that have pins,
//! one at a time.
//!
//! The task appends its event under an epoch that no process holds. A process may revive the session meanwhile:
//!
//! - If the task appends first, the process reads the event.
//! - If the process gets its lease first, the append fails and nothing is changed.
//!
//! The links are removed after the append, and only those of earlier incarnations. The next incarnation has a directory of
//! its own.
//!
//! State, in memory: where the last run stopped, and which unpinned contents are still in a store because they were
//! used recently. A crash between the event and the removal of links leaves links. A later run removes them. A crash
//! after the removal of links leaves contents. The store removes them once they were not used for a month.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_actors::artifacts::have_expired;
use conjure_actors::maintenance::MaintenanceTask;
use conjure_actors::session::JournalEventLog;
use conjure_actors::supervision::Failure;
use conjure_artifact::ArtifactOptions;
use conjure_base::{Clock as _, Deadline, Digest, SessionId, SystemClock, TenantId, Timestamp, lock};
use conjure_conversation::{CommandKind, Conversation, SubmitError};
use conjure_journal::{Epoch, SessionKey};
use futures_util::future::BoxFuture;

use crate::runtime::data::artifact_pins::{pinned_sessions, unpin};
use crate::runtime::data::data_layout::RuntimeDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::maintenance::clock_check::ClockCheck;
use crate::runtime::maintenance::context::MaintenanceContext;
use crate::runtime::maintenance::delete_old_sessions::is_dated;
use crate::runtime::session::readers::session_reader::SessionReader;
use crate::runtime::task_set::run_blocking;
use crate::runtime::tenants::TenantDeletions;

/// A content used within this time may be about to be linked.
const RECENTLY_USED: Duration = Duration::from_secs(3_600);

/// How many recently used, unpinned contents are remembered.
const MOST_REMEMBERED: usize = 10_000;

/// Expires the artifacts of sessions that were unused for longer than `ttl`.
pub(super) struct ExpireArtifacts {
    context: Arc<MaintenanceContext>,
    options: Arc<ArtifactOptions>,
    ttl: Duration,
    clock_check: ClockCheck,
    /// The next run continues after this session. `None` if it starts at the first one.
    last: Mutex<Option<SessionKey>>,
    remembered: Mutex<BTreeMap<TenantId, BTreeSet<Digest>>>,
}

/// What the record of a session says about its pins.
enum IdleSession {
    /// It is not passivated, or does not exist.
    No,
    /// It is passivated and needs these contents. Other pins of incarnations before this epoch are not needed.
    Pinned(BTreeSet<String>, Epoch),
}

impl ExpireArtifacts {
    pub(super) fn new(
        context: Arc<MaintenanceContext>,
        options: Arc<ArtifactOptions>,
        time: Duration,
    ) -> Self {
        let (clock_check, (last, remembered)) = (ClockCheck::new(), Default::default());
        Self { context, options, ttl: time, clock_check, last, remembered }
    }

    /// Inspects all sessions, starting after the one where the last run stopped.
    async fn expire_all(&self, runtime: &Runtime, now: Timestamp) -> Result<u64, Failure> {
        let records = runtime.session_reader().await?;
        let (mut removed, mut failed) = (0, None);
        let begin = lock(&self.last).clone();
        for tenant in self.tenants(begin.as_ref()).await? {
            let sessions = match self.sessions(&tenant, begin.as_ref()).await {
                Ok(sessions) => sessions,
                Err(error) => {
                    tracing::debug!(%tenant, %error, "the sessions of a tenant could not be listed");
                    failed = Some(error);
                    continue;
                }
            };
            let mut dropped = BTreeSet::new();
            for session in sessions {
                let key = SessionKey::new(tenant.clone(), session);
                *lock(&self.last) = Some(key.clone());
                match self.expire(runtime, &records, &key, now).await {
                    Ok(let_go) => {
                        removed += let_go.len() as u64;
                        dropped.extend(let_go);
                    }
                    // The other sessions must not wait for it.
                    Err(error) => {
                        tracing::debug!(session = %key, %error, "a session's artifacts could not be inspected");
                        failed = Some(error);
                    }
                }
            }
            self.remember(&tenant, dropped);
        }
        *lock(&self.last) = None;
        self.forget_contents(now).await?;
        match failed {
            Some(error) if removed == 0 => Err(error.into()),
            _ => Ok(removed),
        }
    }

    /// The tenants with a directory, in order. Starts with the tenant where the last run stopped.
    async fn tenants(&self, begin: Option<&SessionKey>) -> Result<Vec<TenantId>, RuntimeError> {
        let home = Arc::clone(&self.context.home);
        let listing = run_blocking("listing the tenants", move || {
            let deletions = TenantDeletions::new(home.path());
            let mut tenants = home.tenants();
            tenants.retain(|tenant| deletions.check(tenant).is_ok());
            tenants.sort();
            Ok(tenants)
        });
        let mut tenants = listing.await?;
        tenants.retain(|tenant| begin.is_none_or(|begin| *tenant >= begin.tenant));
        Ok(tenants)
    }

    /// The sessions of a tenant that have pins.
    async fn sessions(
        &self,
        tenant: &TenantId,
        begin: Option<&SessionKey>,
    ) -> Result<Vec<SessionId>, RuntimeError> {
        let tenant_path = self.context.home.tenant_path(tenant);
        let mut sessions =
            run_blocking("listing pinned artifacts", move || pinned_sessions(&tenant_path)).await?;
        if let Some(begin) = begin.filter(|begin| begin.tenant == *tenant) {
            sessions.retain(|session| *session > begin.session);
        }
        Ok(sessions)
    }

    /// Expires a session's artifacts, and unpins contents that it does not need. Returns the unpinned contents.
    async fn expire(
        &self,
        runtime: &Runtime,
        records: &SessionReader,
        key: &SessionKey,
        now: Timestamp,
    ) -> Result<Vec<Digest>, RuntimeError> {
        let IdleSession::Pinned(wanted, epoch) = self.inspect(runtime, records, key, now).await? else {
            return Ok(Vec::new());
        };
        let (tenant_path, session) = (self.context.home.tenant_path(&key.tenant), key.session);
        run_blocking("unpinning artifacts", move || unpin(&tenant_path, session, epoch, &wanted)).await
    }

    async fn inspect(
        &self,
        runtime: &Runtime,
        records: &SessionReader,
        key: &SessionKey,
        now: Timestamp,
    ) -> Result<IdleSession, RuntimeError> {
        let tree = &runtime.inner.tree;
        let look =
            async || match records.info(key).await {
                Ok(info) => Ok(Some(info)
                    .filter(|info| is_dated(info, now) && now.duration_since(info.updated) > self.ttl)),
                // It is being opened or deleted. That operation takes care of the pins, too.
                Err(RuntimeError::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            };
        let Some(mut info) = look().await? else { return Ok(IdleSession::No) };
        if info.lease.is_some() {
            // If the process of the lease is certainly dead, no process has the session.
            runtime.release_dead_lease(key, records).await?;
            match look().await? {
                Some(free) if free.lease.is_none() => info = free,
                _ => return Ok(IdleSession::No),
            }
        }
        let unreadable = |error: &dyn std::fmt::Display| RuntimeError::Unreadable {
            session: key.session,
            reason: error.to_string(),
        };
        // No process holds this epoch. The next owner gets a later one, which makes this one stale.
        let event_log = JournalEventLog::new(tree.journal().clone(), Arc::new(key.clone()), info.epoch);
        let conversation = Conversation::load(Arc::new(event_log), Arc::new(SystemClock), Arc::new(())).await;
        let mut conversation = conversation.map_err(|error| unreadable(&error))?;
        if conversation.seq() != info.events {
            return Ok(IdleSession::No);
        }
        if have_expired(conversation.state(), &self.options, now) {
            match conversation.submit(CommandKind::ClearArtifacts).await {
                Ok(()) => tracing::info!(session = %key, "the session's artifacts have expired"),
                // Another process was faster, or the journal failed. The next run inspects the session again.
                Err(SubmitError::EventLog(_) | SubmitError::Rejected(_)) => return Ok(IdleSession::No),
                Err(error) => return Err(unreadable(&error)),
            }
        }
        let artifacts = conversation.state().view().artifacts().iter();
        let contents = artifacts.filter_map(|artifact| artifact.content.as_ref());
        Ok(IdleSession::Pinned(contents.map(|content| content.digest.to_hex()).collect(), info.epoch))
    }

    fn remember(&self, tenant: &TenantId, dropped: BTreeSet<Digest>) {
        let mut remembered = lock(&self.remembered);
        let count: usize = remembered.values().map(BTreeSet::len).sum();
        if !dropped.is_empty() && count < MOST_REMEMBERED {
            remembered.entry(tenant.clone()).or_default().extend(dropped);
        }
    }

    /// Removes unpinned contents from the stores, except those that are linked or were just used. Contents that are not
    /// remembered are removed once they were not used for a month.
    async fn forget_contents(&self, now: Timestamp) -> Result<(), RuntimeError> {
        let before = Timestamp::from_millis(now.millis().saturating_sub(RECENTLY_USED.as_millis() as u64));
        let (remembered, mut failed) = (lock(&self.remembered).clone(), Ok(()));
        for (tenant, dropped) in remembered {
            let (home, owner) = (Arc::clone(&self.context.home), tenant.clone());
            let deletion = run_blocking("removing contents of artifacts", move || {
                forget_contents(&home, &owner, dropped, before)
            });
            let remaining = match deletion.await {
                Ok(remaining) => remaining,
                // The other tenants must not wait for it.
                Err(error) => {
                    tracing::debug!(%tenant, %error, "unpinned contents of a tenant could not be removed");
                    failed = Err(error);
                    continue;
                }
            };
            let mut remembered = lock(&self.remembered);
            if remaining.is_empty() {
                remembered.remove(&tenant);
            } else {
                remembered.insert(tenant, remaining);
            }
        }
        failed
    }
}

/// Removes these contents from a tenant's store, except linked and recently used ones. Returns the contents to try
/// again. Blocks.
fn forget_contents(
    home: &RuntimeDir,
    tenant: &TenantId,
    mut dropped: BTreeSet<Digest>,
    unused_since: Timestamp,
) -> Result<BTreeSet<Digest>, RuntimeError> {
    let Some(home) = home.existing(tenant)? else { return Ok(BTreeSet::new()) };
    let failed = |error: &dyn std::fmt::Display| RuntimeError::data(home.data.path(), &error);
    let store = home.data.store();
    let linked = store.linked_digests().map_err(|error| failed(&error))?;
    // The session that has a link unpins the content later.
    dropped.retain(|digest| !linked.contains(digest));
    if dropped.is_empty() {
        return Ok(dropped);
    }
    // A content is marked as used before it is linked, so one that is about to be linked stays.
    home.data.collect(|digest| !dropped.contains(digest), unused_since).map_err(|error| failed(&error))?;
    let stored: BTreeSet<Digest> =
        store.digests().map_err(|error| failed(&error))?.into_iter().map(|(digest, _)| digest).collect();
    dropped.retain(|digest| stored.contains(digest));
    Ok(dropped)
}

impl MaintenanceTask for ExpireArtifacts {
    fn name(&self) -> &'static str {
        "artifacts"
    }

    /// A tenth of the time to live, between a minute and an hour.
    fn interval(&self) -> Duration {
        (self.ttl / 10).clamp(Duration::from_secs(60), Duration::from_secs(3_600))
    }

    /// Returns how many links were removed.
    fn run(&self, deadline: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async move {
            let runtime = self.context.runtime()?;
            let Some(now) = self.clock_check.now() else { return Ok(0) };
            tokio::select! {
                biased;
                cleared = self.expire_all(&runtime, now) => cleared,
                // The next run continues after the last session.
                () = SystemClock.sleep_until(deadline) => Err("there is more than could be cleared in time".into()),
            }
        })
    }
}
