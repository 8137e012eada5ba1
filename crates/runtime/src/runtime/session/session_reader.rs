//! Reads what is recorded of sessions, without starting them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use conjure_actors::journal::JournalHandle;
use conjure_actors::session::{EVENT_KIND, SessionStatus, redact_event, redact_stop};
use conjure_base::{Clock as _, Digest, Redactor, SessionId, SystemClock, TenantId, Timestamp};
use conjure_conversation::{
    Artifact, Event, EventKind, SessionEvent, SessionFile, SessionProfile, SessionState, Step, TurnStop,
    Usage, apply, next, session_events,
};
use conjure_journal::{
    EventPage, Journal, JournalError, LeaseOwner, ListCursor, PageLimit, RecordedEvent, SessionInfo,
    SessionKey, read_all,
};

use crate::runtime::data::process_lock::ProcessLock;
use crate::runtime::error::RuntimeError;
use crate::runtime::session::session_projection::ProjectionBuilder;
use crate::runtime::task_set::run_blocking;

/// A page of a tenant's sessions, the newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionList {
    /// The sessions.
    pub sessions: Vec<SessionSummary>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<ListCursor>,
}

/// The summary of a session.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SessionSummary {
    /// The id.
    pub id: SessionId,
    /// When the session was opened.
    pub opened: Timestamp,
    /// When the last event was recorded.
    pub updated: Timestamp,
    /// The number of events.
    pub events: u64,
    /// The process that has the lease; `None`: the session is passivated.
    pub lease_owner: Option<LeaseOwner>,
    /// The content.
    pub body: SessionBody,
}

/// The content of a session.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum SessionBody {
    /// The record was read.
    Ok(Box<SessionContents>),
    /// The record cannot be read. Other sessions are not affected.
    Corrupt {
        /// The reason.
        reason: String,
    },
}

/// The content of a session, as its record says.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SessionContents {
    /// The status.
    pub status: SessionStatus,
    /// The number of turns, including an unfinished one.
    pub turns: u64,
    /// How the last finished turn ended. Secrets that this process knows are redacted.
    pub last_stop: Option<TurnStop>,
    /// The text of the last response. Secrets that this process knows are redacted.
    pub last_text: String,
    /// The usage of all finished turns.
    pub usage: Usage,
    /// The name of the model.
    pub model: Option<String>,
    /// The embedder's metadata.
    pub metadata: BTreeMap<String, String>,
}

/// Reads records of sessions.
pub(crate) struct SessionReader {
    journal: Arc<dyn Journal>,
    /// Tells which processes are dead; `None`: no other process has the data.
    process_lock: Option<Arc<ProcessLock>>,
}

/// Whether summaries are stored for the next reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SavePolicy {
    Wanted,
    /// Storing failed.
    GivenUp,
}

impl SessionReader {
    /// A reader of the open journal.
    pub(crate) async fn open(
        access: &JournalHandle,
        process_lock: Option<Arc<ProcessLock>>,
    ) -> Result<Self, RuntimeError> {
        let journal = access.journal().await;
        let journal =
            journal.map_err(|error| RuntimeError::JournalUnavailable { reason: error.to_string() })?;
        Ok(Self { journal, process_lock })
    }

    pub(crate) fn journal(&self) -> &Arc<dyn Journal> {
        &self.journal
    }

    /// What the journal knows of a session without its events.
    pub(crate) async fn info(&self, key: &SessionKey) -> Result<SessionInfo, RuntimeError> {
        self.journal.session(key).await.map_err(|error| not_found(key, error))
    }

    /// The profile of a session: that which it was opened with, with its current model.
    pub(crate) async fn profile(&self, key: &SessionKey) -> Result<SessionProfile, RuntimeError> {
        let mut profile = self.opened_profile(key).await?;
        if let Some(last) = self.model_changes(key).await?.pop() {
            profile.model = Some(last);
        }
        Ok(profile)
    }

    /// The models that the session was changed to, in order.
    pub(crate) async fn model_changes(&self, key: &SessionKey) -> Result<Vec<String>, RuntimeError> {
        let (mut changes, mut next) = (Vec::new(), Some(1));
        while let Some(from) = next {
            let page = self.page(key, from, PageLimit::default()).await?;
            next = page.next();
            for recorded in page.events.iter().filter(|recorded| may_change_model(recorded)) {
                if let EventKind::ModelChanged { to, .. } = read(key, recorded)?.kind {
                    changes.push(to);
                }
            }
        }
        Ok(changes)
    }

    /// The profile that a session was opened with.
    pub(crate) async fn opened_profile(&self, key: &SessionKey) -> Result<SessionProfile, RuntimeError> {
        let first = self.journal.read(key, 0, PageLimit { events: 1, ..PageLimit::default() }).await;
        let page = first.map_err(|error| not_found(key, error))?;
        let Some(recorded) = page.events.first() else { return Ok(SessionProfile::default()) };
        match read(key, recorded)?.kind {
            EventKind::Opened { profile } => Ok(*profile),
            _ => Ok(SessionProfile::default()),
        }
    }

    /// A page of a session's events from this number on.
    pub(crate) async fn page(
        &self,
        key: &SessionKey,
        from: u64,
        limit: PageLimit,
    ) -> Result<EventPage, RuntimeError> {
        self.journal.read(key, from, limit).await.map_err(|error| not_found(key, error))
    }

    /// Removes the contents from `unused` that a session of the tenant has. Reads the first event of each session,
    /// the newest first, until the set is empty.
    pub(crate) async fn without_used(
        &self,
        tenant: &TenantId,
        unused: &mut BTreeSet<Digest>,
    ) -> Result<(), RuntimeError> {
        let mut after = None;
        loop {
            let page = self.journal.sessions(tenant, after, 1_000).await?;
            for info in page.sessions {
                if unused.is_empty() {
                    return Ok(());
                }
                match self.opened_profile(&SessionKey::new(tenant.clone(), info.session)).await {
                    Ok(profile) => {
                        for skill in &profile.skills {
                            unused.remove(&skill.digest);
                        }
                    }
                    // It was deleted meanwhile.
                    Err(RuntimeError::NotFound { .. }) => {}
                    // Its skills are not known.
                    Err(error) => return Err(error),
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// The artifacts of a session, and the files that its turns produced.
    pub(crate) async fn artifacts_and_files(
        &self,
        key: &SessionKey,
    ) -> Result<(Vec<Artifact>, Vec<SessionFile>), RuntimeError> {
        let recorded = read_all(&*self.journal, key, 0).await.map_err(|error| not_found(key, error))?;
        let mut state = SessionState::default();
        for recorded in &recorded {
            apply(&mut state, &read(key, recorded)?);
        }
        let artifacts = state.view().artifacts().iter().map(|artifact| Artifact::clone(artifact));
        Ok((artifacts.collect(), state.files().cloned().collect()))
    }

    /// All recorded events of a session from this number on.
    pub(crate) async fn recorded_events(
        &self,
        key: &SessionKey,
        from_seq: u64,
    ) -> Result<Vec<Event>, RuntimeError> {
        let recorded =
            read_all(&*self.journal, key, from_seq).await.map_err(|error| not_found(key, error))?;
        recorded.iter().map(|recorded| read(key, recorded)).collect()
    }

    /// All events of a session from this number on.
    pub(crate) async fn events(
        &self,
        key: &SessionKey,
        from_seq: u64,
        redactor: &Redactor,
    ) -> Result<Vec<SessionEvent>, RuntimeError> {
        let recorded =
            read_all(&*self.journal, key, from_seq).await.map_err(|error| not_found(key, error))?;
        let mut told = Vec::new();
        for recorded in &recorded {
            if let Some(event) = redact_event(redactor, &read(key, recorded)?) {
                told.extend(session_events(key.session, recorded.seq, &event));
            }
        }
        Ok(told)
    }

    /// A page of a tenant's sessions. Reads only events that were added since the last summary.
    pub(crate) async fn list(
        &self,
        tenant: &TenantId,
        after: Option<ListCursor>,
        limit: u32,
        redactor: impl Fn(&SessionKey) -> Redactor,
    ) -> Result<SessionList, RuntimeError> {
        let page = self.journal.sessions(tenant, after, limit).await?;
        let mut sessions = Vec::with_capacity(page.sessions.len());
        let mut keeping = SavePolicy::Wanted;
        for (info, held_by) in self.with_lease_owners(page.sessions).await? {
            let key = SessionKey::new(tenant.clone(), info.session);
            match self.read_summary(&key, info, held_by, &redactor(&key), &mut keeping).await {
                Ok(summary) => sessions.push(summary),
                // It was deleted meanwhile.
                Err(RuntimeError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(SessionList { sessions, next: page.next })
    }

    /// The summary of a session. Reads only events that were added since the last summary.
    pub(crate) async fn summary(
        &self,
        key: &SessionKey,
        info: SessionInfo,
        redactor: &Redactor,
    ) -> Result<SessionSummary, RuntimeError> {
        let mut keeping = SavePolicy::Wanted;
        let held = self.with_lease_owners(vec![info]).await?.pop();
        let Some((info, held_by)) = held else { return Err(RuntimeError::NotFound { session: key.session }) };
        self.read_summary(key, info, held_by, redactor, &mut keeping).await
    }

    /// The sessions with their lease owners. A dead process owns no lease.
    async fn with_lease_owners(
        &self,
        infos: Vec<SessionInfo>,
    ) -> Result<Vec<(SessionInfo, Option<LeaseOwner>)>, RuntimeError> {
        let (now, process_lock) = (SystemClock.timestamp(), self.process_lock.clone());
        run_blocking("looking who lives", move || {
            let mut dead: HashMap<LeaseOwner, bool> = HashMap::new();
            let mut is_dead = |owner: &LeaseOwner| {
                let Some(process_lock) = &process_lock else { return false };
                *dead.entry(owner.clone()).or_insert_with(|| process_lock.is_dead(owner))
            };
            let held = infos.into_iter().map(|info| {
                let lease = info.lease.as_ref().filter(|lease| lease.until > now && !is_dead(&lease.owner));
                let owner = lease.map(|lease| lease.owner.clone());
                (info, owner)
            });
            Ok(held.collect())
        })
        .await
    }

    async fn read_summary(
        &self,
        key: &SessionKey,
        info: SessionInfo,
        held_by: Option<LeaseOwner>,
        redactor: &Redactor,
        keeping: &mut SavePolicy,
    ) -> Result<SessionSummary, RuntimeError> {
        let contents = match self.contents(key, &info, held_by.is_some(), redactor, keeping).await {
            Ok(contents) => SessionBody::Ok(Box::new(contents)),
            Err(error @ RuntimeError::NotFound { .. }) => return Err(error),
            Err(error) => SessionBody::Corrupt { reason: error.to_string() },
        };
        Ok(SessionSummary {
            id: info.session,
            opened: info.created,
            updated: info.updated,
            events: info.events,
            lease_owner: held_by,
            body: contents,
        })
    }

    /// The ids of a tenant's sessions, the newest first.
    pub(crate) async fn ids(&self, tenant: &TenantId) -> Result<Vec<SessionId>, RuntimeError> {
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = self.journal.sessions(tenant, after, 1_000).await?;
            ids.extend(page.sessions.iter().map(|info| info.session));
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(ids),
            }
        }
    }

    async fn contents(
        &self,
        key: &SessionKey,
        info: &SessionInfo,
        is_held: bool,
        redactor: &Redactor,
        keeping: &mut SavePolicy,
    ) -> Result<SessionContents, RuntimeError> {
        let kept = match info.snapshot {
            // A damaged snapshot is ignored.
            Some(_) => self.journal.snapshot(key).await.unwrap_or_default(),
            None => None,
        };
        let mut reading = ProjectionBuilder::from_snapshot(kept, info.events);
        loop {
            let page = self.journal.read(key, reading.next(), PageLimit::default()).await;
            let page = page.map_err(|error| not_found(key, error))?;
            for recorded in &page.events {
                reading.apply(&read(key, recorded)?);
            }
            if page.next().is_none() {
                break;
            }
        }
        if let (SavePolicy::Wanted, Some(snapshot)) = (*keeping, reading.snapshot())
            && let Err(error) = self.journal.save_snapshot(key, info.epoch, snapshot).await
        {
            tracing::debug!(session = %key, %error, "the summary of a session was not stored");
            // Another process is writing the session. Other errors would affect all sessions.
            if !matches!(error, JournalError::StaleEpoch { .. } | JournalError::NotFound { .. }) {
                *keeping = SavePolicy::GivenUp;
            }
        }
        let (projection, state) = (reading.projection(), reading.state());
        Ok(SessionContents {
            status: match state.turn() {
                None => SessionStatus::Idle,
                Some(turn) if next(state) == Step::AwaitApproval => {
                    SessionStatus::AwaitingApproval(turn.id())
                }
                Some(turn) if is_held => SessionStatus::Running(turn.id()),
                Some(turn) => SessionStatus::Interrupted(turn.id()),
            },
            turns: projection.turns,
            last_stop: projection.last_stop.map(|stop| redact_stop(redactor, &stop)),
            last_text: redactor.redact(&projection.last_text).into_owned(),
            usage: projection.usage,
            model: projection.model,
            metadata: projection.metadata,
        })
    }
}

/// Whether this may be a change of the model, by the beginning of its text. Most events are not parsed for that.
fn may_change_model(recorded: &RecordedEvent) -> bool {
    /// The longest beginning that has the name of the event: the version and the time stand before it.
    const BEGINNING: usize = 96;
    const NAME: &[u8] = b"\"model_changed\"";
    let body: &[u8] = &recorded.body;
    body[..body.len().min(BEGINNING)].windows(NAME.len()).any(|window| window == NAME)
}

pub(crate) fn read(key: &SessionKey, recorded: &RecordedEvent) -> Result<Event, RuntimeError> {
    let unreadable = |reason: String| RuntimeError::Unreadable {
        session: key.session,
        reason: format!("event {}: {reason}", recorded.seq),
    };
    if recorded.kind != EVENT_KIND {
        return Err(unreadable(format!("it is of kind `{}`, which is no conversation's", recorded.kind)));
    }
    serde_json::from_slice(&recorded.body).map_err(|error| unreadable(error.to_string()))
}

fn not_found(key: &SessionKey, error: JournalError) -> RuntimeError {
    match error {
        JournalError::NotFound { .. } => RuntimeError::NotFound { session: key.session },
        other => RuntimeError::Journal(other),
    }
}
