//! The chore of artifacts: those of sessions that nobody uses expire by their time, also where nobody comes to use the session again.
//!
//! A session's actor sees that when the session is used, and does the same: it records that the artifacts are cleared, and lets go of their
//! contents. Here no actor is started and no lease taken. Only sessions are looked at of which contents are kept, one at a time, and only
//! those that were put away: what is recorded then is recorded under the epoch that nobody has, so whoever revives the session meanwhile,
//! in whichever process, is either behind it, and reads it, or before it, and then nothing is done. Links are removed after that, and only
//! those of incarnations that are over: the next one has a folder of its own.
//!
//! State, in memory: where the last run stopped, and which contents were let go of and are still in a store, as they were used a little
//! ago. A crash between the record and the links leaves links, which a later run removes; one behind the links leaves contents, which go
//! with all that nobody used for a month.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_actors::artifacts::have_expired;
use conjure_actors::janitor::Chore;
use conjure_actors::session::JournalLedger;
use conjure_actors::supervision::Failure;
use conjure_artifact::ArtifactOptions;
use conjure_base::{Clock as _, Deadline, Digest, SessionId, SystemClock, TenantId, Timestamp};
use conjure_conversation::{CommandKind, Conversation, SubmitError};
use conjure_journal::{Epoch, SessionKey};
use futures_util::future::BoxFuture;

use super::super::error::RuntimeError;
use super::super::handle::Runtime;
use super::super::home::Home;
use super::super::kept::{kept_sessions, let_go};
use super::super::outfit::blocking;
use super::super::records::Records;
use super::super::tenants::Gone;
use super::premises::Premises;
use super::retention::is_dated;
use super::steady::Steady;

/// Who used a content no longer ago than this may be about to link it.
const JUST_USED: Duration = Duration::from_secs(3_600);

/// How many contents are remembered that were let go of and were used a little ago.
const MOST_REMEMBERED: usize = 10_000;

/// Clears the artifacts of sessions that nobody used for so long.
pub(super) struct Artifacts {
    premises: Arc<Premises>,
    options: Arc<ArtifactOptions>,
    time: Duration,
    steady: Steady,
    since: Deadline,
    /// Behind which session the next run goes on; `None`: at the first.
    last: Mutex<Option<SessionKey>>,
    remembered: Mutex<BTreeMap<TenantId, BTreeSet<Digest>>>,
}

/// What a session at rest has by its record.
enum AtRest {
    /// It is not at rest, or is not there.
    No,
    /// These contents; what incarnations before this epoch have besides is of no use.
    Has(BTreeSet<String>, Epoch),
}

impl Artifacts {
    pub(super) fn at(premises: Arc<Premises>, options: Arc<ArtifactOptions>, time: Duration) -> Self {
        let (steady, since) = (Steady::default(), Steady::beginning());
        let (last, remembered) = Default::default();
        Self { premises, options, time, steady, since, last, remembered }
    }

    /// Goes through all sessions, from behind the one where the last run stopped.
    async fn clear_all(&self, runtime: &Runtime, now: Timestamp) -> Result<u64, Failure> {
        let records = runtime.records().await?;
        let (mut removed, mut failed) = (0, None);
        let begin = lock(&self.last).clone();
        for tenant in self.tenants(begin.as_ref()).await? {
            let sessions = match self.sessions(&tenant, begin.as_ref()).await {
                Ok(sessions) => sessions,
                Err(error) => {
                    tracing::debug!(%tenant, %error, "which artifacts of its sessions have expired is not known");
                    failed = Some(error);
                    continue;
                }
            };
            let mut dropped = BTreeSet::new();
            for session in sessions {
                let key = SessionKey::new(tenant.clone(), session);
                *lock(&self.last) = Some(key.clone());
                match self.clear(runtime, &records, &key, now).await {
                    Ok(let_go) => {
                        removed += let_go.len() as u64;
                        dropped.extend(let_go);
                    }
                    // Others are not to wait for it.
                    Err(error) => {
                        tracing::debug!(session = %key, %error, "whether its artifacts have expired is not known");
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

    /// Those that have a folder, from the one on where the last run stopped, in order.
    async fn tenants(&self, begin: Option<&SessionKey>) -> Result<Vec<TenantId>, RuntimeError> {
        let home = Arc::clone(&self.premises.home);
        let listing = blocking("listing the tenants", move || {
            let gone = Gone::of(home.path());
            let mut tenants = home.tenants();
            tenants.retain(|tenant| gone.check(tenant).is_ok());
            tenants.sort();
            Ok(tenants)
        });
        let mut tenants = listing.await?;
        tenants.retain(|tenant| begin.is_none_or(|begin| *tenant >= begin.tenant));
        Ok(tenants)
    }

    /// Those of a tenant of which contents are kept.
    async fn sessions(
        &self,
        tenant: &TenantId,
        begin: Option<&SessionKey>,
    ) -> Result<Vec<SessionId>, RuntimeError> {
        let place = self.premises.home.place(tenant);
        let mut sessions =
            blocking("listing what is kept of artifacts", move || kept_sessions(&place)).await?;
        if let Some(begin) = begin.filter(|begin| begin.tenant == *tenant) {
            sessions.retain(|session| *session > begin.session);
        }
        Ok(sessions)
    }

    /// Clears a session's artifacts where they have expired, and lets go of contents that it does not have. Which these are.
    async fn clear(
        &self,
        runtime: &Runtime,
        records: &Records,
        key: &SessionKey,
        now: Timestamp,
    ) -> Result<Vec<Digest>, RuntimeError> {
        let AtRest::Has(wanted, epoch) = self.at_rest(runtime, records, key, now).await? else {
            return Ok(Vec::new());
        };
        let (place, session) = (self.premises.home.place(&key.tenant), key.session);
        blocking("letting go of artifacts", move || let_go(&place, session, epoch, &wanted)).await
    }

    async fn at_rest(
        &self,
        runtime: &Runtime,
        records: &Records,
        key: &SessionKey,
        now: Timestamp,
    ) -> Result<AtRest, RuntimeError> {
        let tree = &runtime.inner.tree;
        let look = async || match records.info(key).await {
            Ok(info) => {
                Ok(Some(info).filter(|info| is_dated(info, now) && now.since(info.updated) > self.time))
            }
            // It is being opened, or deleted: whoever does that sees to it.
            Err(RuntimeError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        let Some(mut info) = look().await? else { return Ok(AtRest::No) };
        if info.lease.is_some() {
            // Where its host is dead, for certain, nobody has it.
            runtime.free(key, records).await?;
            match look().await? {
                Some(free) if free.lease.is_none() => info = free,
                _ => return Ok(AtRest::No),
            }
        }
        let unreadable = |error: &dyn std::fmt::Display| RuntimeError::Unreadable {
            session: key.session,
            reason: error.to_string(),
        };
        // Nobody has this epoch: the next one to have the session has a later one, and makes this one stale.
        let ledger = JournalLedger::new(tree.journal().clone(), Arc::new(key.clone()), info.epoch);
        let conversation = Conversation::load(Arc::new(ledger), Arc::new(SystemClock), Arc::new(())).await;
        let mut conversation = conversation.map_err(|error| unreadable(&error))?;
        if conversation.seq() != info.events {
            return Ok(AtRest::No);
        }
        if have_expired(conversation.state(), &self.options, now) {
            match conversation.submit(CommandKind::ClearArtifacts).await {
                Ok(()) => tracing::info!(session = %key, "the session's artifacts have expired"),
                // Somebody was faster, or the journal failed; it is looked at again in its time.
                Err(SubmitError::Ledger(_) | SubmitError::Rejected(_)) => return Ok(AtRest::No),
                Err(error) => return Err(unreadable(&error)),
            }
        }
        let artifacts = conversation.state().standing().artifacts().iter();
        let contents = artifacts.filter_map(|artifact| artifact.content.as_ref());
        Ok(AtRest::Has(contents.map(|content| content.digest.to_hex()).collect(), info.epoch))
    }

    fn remember(&self, tenant: &TenantId, dropped: BTreeSet<Digest>) {
        let mut remembered = lock(&self.remembered);
        let count: usize = remembered.values().map(BTreeSet::len).sum();
        if !dropped.is_empty() && count < MOST_REMEMBERED {
            remembered.entry(tenant.clone()).or_default().extend(dropped);
        }
    }

    /// Removes the contents from the stores that were let go of, nobody has a link to, and nobody used just now. What this does not
    /// remember goes with all that nobody used for a month.
    async fn forget_contents(&self, now: Timestamp) -> Result<(), RuntimeError> {
        let before = Timestamp::from_millis(now.millis().saturating_sub(JUST_USED.as_millis() as u64));
        let (remembered, mut failed) = (lock(&self.remembered).clone(), Ok(()));
        for (tenant, dropped) in remembered {
            let (home, of) = (Arc::clone(&self.premises.home), tenant.clone());
            let left = blocking("removing contents of artifacts", move || {
                forget_contents(&home, &of, dropped, before)
            });
            let left = match left.await {
                Ok(left) => left,
                // Others are not to wait for it.
                Err(error) => {
                    tracing::debug!(%tenant, %error, "what its artifacts had could not be removed");
                    failed = Err(error);
                    continue;
                }
            };
            let mut remembered = lock(&self.remembered);
            if left.is_empty() {
                remembered.remove(&tenant);
            } else {
                remembered.insert(tenant, left);
            }
        }
        failed
    }
}

/// Removes these contents of a tenant's store, but for those that somebody has or used since then. Which are to be looked at again. Blocks.
fn forget_contents(
    home: &Home,
    tenant: &TenantId,
    mut dropped: BTreeSet<Digest>,
    unused_since: Timestamp,
) -> Result<BTreeSet<Digest>, RuntimeError> {
    let Some(home) = home.existing(tenant)? else { return Ok(BTreeSet::new()) };
    let failed = |error: &dyn std::fmt::Display| RuntimeError::data(home.data.path(), &error);
    let store = home.data.store();
    let linked = store.linked().map_err(|error| failed(&error))?;
    // Whoever has a link lets go of it, too, in their time.
    dropped.retain(|digest| !linked.contains(digest));
    if dropped.is_empty() {
        return Ok(dropped);
    }
    // Whoever links one meanwhile has marked it as used before.
    home.data.collect(|digest| !dropped.contains(digest), unused_since).map_err(|error| failed(&error))?;
    let there: BTreeSet<Digest> =
        store.digests().map_err(|error| failed(&error))?.into_iter().map(|(digest, _)| digest).collect();
    dropped.retain(|digest| there.contains(digest));
    Ok(dropped)
}

impl Chore for Artifacts {
    fn name(&self) -> &'static str {
        "artifacts"
    }

    /// A tenth of the time that they are kept, an hour at most and a minute at least.
    fn every(&self) -> Duration {
        (self.time / 10).clamp(Duration::from_secs(60), Duration::from_secs(3_600))
    }

    /// How many links to contents were removed.
    fn run(&self, deadline: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async move {
            let runtime = self.premises.runtime()?;
            let Some(now) = self.steady.now(self.since) else {
                tracing::debug!("how old artifacts are is not known yet, as the clock was just begun or set");
                return Ok(0);
            };
            tokio::select! {
                biased;
                cleared = self.clear_all(&runtime, now) => cleared,
                // The next run goes on behind the last one.
                () = SystemClock.sleep_until(deadline) => Err("there is more than could be cleared in time".into()),
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
