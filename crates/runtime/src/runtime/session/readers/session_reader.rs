//! Reads recorded sessions without starting them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use conjure_actors::journal::JournalHandle;
use conjure_actors::session::{EVENT_KIND, SessionStatus, from_row, redact_stop, to_row};
use conjure_base::{Clock as _, Digest, Redactor, SessionId, SystemClock, TenantId, Timestamp};
use conjure_conversation::{
    Artifact, Event, EventKind, OverviewStatus, SessionFile, SessionOverview, SessionProfile, SessionState,
    TextHead, TurnStop, Usage, apply,
};
use conjure_journal::{
    AppendBatch, EventPage, Journal, JournalError, LeaseOwner, ListCursor, PageLimit, RecordedEvent,
    SessionInfo, SessionKey, SessionQuery, read_all,
};

use crate::runtime::data::process_lock::ProcessLock;
use crate::runtime::error::RuntimeError;
use crate::runtime::task_set::run_blocking;

/// A page of a tenant's sessions.
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
    /// The number of inputs in the queue.
    pub queued: usize,
    /// The beginning of the text of the last response. Secrets that this process knows are redacted.
    pub last_text: String,
    /// The usage of all turns.
    pub usage: Usage,
    /// The name of the model.
    pub model: Option<String>,
    /// The title.
    pub title: Option<String>,
    /// The embedder's metadata.
    pub metadata: BTreeMap<String, String>,
}

/// Reads recorded sessions.
pub(crate) struct SessionReader {
    journal: Arc<dyn Journal>,
    /// Tells which processes are dead. `None` if no other process uses the data.
    process_lock: Option<Arc<ProcessLock>>,
}

/// Whether rebuilt summaries are stored for the next reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SavePolicy {
    Wanted,
    /// Storing failed, so no further summary is stored.
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

    /// What the journal knows about a session without reading its events.
    pub(crate) async fn info(&self, key: &SessionKey) -> Result<SessionInfo, RuntimeError> {
        self.journal.session(key).await.map_err(|error| not_found(key, error))
    }

    /// The profile of a session: the profile that it was opened with, and all later changes of it.
    pub(crate) async fn profile(&self, key: &SessionKey) -> Result<SessionProfile, RuntimeError> {
        let mut profile = self.opened_profile(key).await?;
        for event in self.profile_changes(key).await? {
            match event {
                EventKind::ModelChanged { to, .. } => profile.set_model(to),
                EventKind::ProfileChanged { change } => change.apply_to(&mut profile),
                _ => {}
            }
        }
        Ok(profile)
    }

    /// The models to which the session was changed, in order.
    pub(crate) async fn model_changes(&self, key: &SessionKey) -> Result<Vec<String>, RuntimeError> {
        let changes = self.profile_changes(key).await?.into_iter().filter_map(|event| match event {
            EventKind::ModelChanged { to, .. } => Some(to),
            _ => None,
        });
        Ok(changes.collect())
    }

    /// The events that change the profile, in order.
    async fn profile_changes(&self, key: &SessionKey) -> Result<Vec<EventKind>, RuntimeError> {
        let (mut changes, mut next) = (Vec::new(), Some(1));
        while let Some(from) = next {
            let page = self.page(key, from, PageLimit::default()).await?;
            next = page.next();
            let may_change = |recorded: &&RecordedEvent| {
                is_of_kind(recorded, "model_changed") || is_of_kind(recorded, "profile_changed")
            };
            for recorded in page.events.iter().filter(may_change) {
                changes.push(read(key, recorded)?.kind);
            }
        }
        Ok(changes)
    }

    /// The profile with which a session was opened.
    pub(crate) async fn opened_profile(&self, key: &SessionKey) -> Result<SessionProfile, RuntimeError> {
        let first = self.journal.read(key, 0, PageLimit { events: 1, ..PageLimit::default() }).await;
        let page = first.map_err(|error| not_found(key, error))?;
        let Some(recorded) = page.events.first() else { return Ok(SessionProfile::default()) };
        match read(key, recorded)?.kind {
            EventKind::Opened { profile } => Ok(*profile),
            _ => Ok(SessionProfile::default()),
        }
    }

    /// A page of a session's events from this sequence number on.
    pub(crate) async fn page(
        &self,
        key: &SessionKey,
        from: u64,
        limit: PageLimit,
    ) -> Result<EventPage, RuntimeError> {
        self.journal.read(key, from, limit).await.map_err(|error| not_found(key, error))
    }

    /// Removes from `unused` the contents that a session of the tenant uses. Reads the first event of each session, the
    /// newest first. Stops when the set is empty.
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
                        unused.retain(|digest| profile.skills.iter().all(|skill| skill.digest != *digest));
                    }
                    // The session was deleted meanwhile.
                    Err(RuntimeError::NotFound { .. }) => {}
                    // The skills of this session are unknown, so nothing can be called unused.
                    Err(error) => return Err(error),
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// The artifacts of a session, and the files that its turns produced.
    pub(crate) async fn artifacts_and_files(
        &self,
        key: &SessionKey,
    ) -> Result<(Vec<Artifact>, Vec<SessionFile>), RuntimeError> {
        let (state, _) = self.state(key).await?;
        let artifacts = state.view().artifacts().iter().map(|artifact| Artifact::clone(artifact));
        Ok((artifacts.collect(), state.files().cloned().collect()))
    }

    /// The state after all events of a session, and the number of the events.
    async fn state(&self, key: &SessionKey) -> Result<(SessionState, u64), RuntimeError> {
        let (mut state, mut total, mut next) = (SessionState::default(), 0, Some(0));
        while let Some(from) = next {
            let page = self.page(key, from, PageLimit::default()).await?;
            for recorded in &page.events {
                apply(&mut state, &read(key, recorded)?);
                total = recorded.seq + 1;
            }
            next = page.next();
        }
        Ok((state, total))
    }

    /// All recorded events of a session from this sequence number on.
    pub(crate) async fn recorded_events(
        &self,
        key: &SessionKey,
        from_seq: u64,
    ) -> Result<Vec<Event>, RuntimeError> {
        let recorded =
            read_all(&*self.journal, key, from_seq).await.map_err(|error| not_found(key, error))?;
        recorded.iter().map(|recorded| read(key, recorded)).collect()
    }

    /// A page of a tenant's sessions, read from their rows. If a session has no row, reads its events.
    pub(crate) async fn list(
        &self,
        tenant: &TenantId,
        query: SessionQuery,
        redactor: impl Fn(&SessionKey) -> Redactor,
    ) -> Result<SessionList, RuntimeError> {
        let page = self.journal.query_sessions(tenant, query).await?;
        let mut sessions = Vec::with_capacity(page.sessions.len());
        let mut saving = SavePolicy::Wanted;
        for (info, held_by) in self.with_lease_owners(page.sessions).await? {
            let key = SessionKey::new(tenant.clone(), info.session);
            match self.read_summary(&key, info, held_by, &redactor(&key), &mut saving).await {
                Ok(summary) => sessions.push(summary),
                // The session was deleted meanwhile.
                Err(RuntimeError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(SessionList { sessions, next: page.next })
    }

    /// The summary of a session, read from its row.
    pub(crate) async fn summary(
        &self,
        key: &SessionKey,
        info: SessionInfo,
        redactor: &Redactor,
    ) -> Result<SessionSummary, RuntimeError> {
        let mut saving = SavePolicy::Wanted;
        let held = self.with_lease_owners(vec![info]).await?.pop();
        let Some((info, held_by)) = held else { return Err(RuntimeError::NotFound { session: key.session }) };
        self.read_summary(key, info, held_by, redactor, &mut saving).await
    }

    /// The living process that has the lease of a session; `None` if there is none.
    pub(crate) async fn lease_owner(&self, info: &SessionInfo) -> Result<Option<LeaseOwner>, RuntimeError> {
        let held = self.with_lease_owners(vec![info.clone()]).await?.pop();
        Ok(held.and_then(|(_, owner)| owner))
    }

    /// The sessions with their lease owners. A dead process does not count as an owner.
    async fn with_lease_owners(
        &self,
        infos: Vec<SessionInfo>,
    ) -> Result<Vec<(SessionInfo, Option<LeaseOwner>)>, RuntimeError> {
        let (now, process_lock) = (SystemClock.timestamp(), self.process_lock.clone());
        run_blocking("checking which processes are alive", move || {
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
        saving: &mut SavePolicy,
    ) -> Result<SessionSummary, RuntimeError> {
        let contents = match self.contents(key, &info, held_by.is_some(), redactor, saving).await {
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
        saving: &mut SavePolicy,
    ) -> Result<SessionContents, RuntimeError> {
        let overview = match info.row.as_ref().and_then(from_row) {
            Some(overview) => overview,
            None => self.overview(key, info, saving).await?,
        };
        let TextHead { text, is_truncated } = overview.last_text;
        Ok(SessionContents {
            status: match (overview.turn, overview.status) {
                (None, _) => SessionStatus::Idle,
                (Some(turn), OverviewStatus::AwaitingAction) => SessionStatus::AwaitingApproval(turn),
                (Some(turn), _) if is_held => SessionStatus::Running(turn),
                (Some(turn), _) => SessionStatus::Interrupted(turn),
            },
            turns: overview.turns,
            queued: overview.queued,
            last_stop: overview.last_stop.map(|stop| redact_stop(redactor, &stop)),
            last_text: match is_truncated {
                true => redactor.redact_head(&text),
                false => redactor.redact(&text).into_owned(),
            },
            usage: overview.usage,
            model: overview.model,
            title: overview.title,
            metadata: overview.metadata,
        })
    }

    /// Builds the overview of a session without a row from all of its events, and stores it for the next reader.
    ///
    /// Such a session was recorded by an earlier version of this program, or its row is damaged.
    async fn overview(
        &self,
        key: &SessionKey,
        info: &SessionInfo,
        saving: &mut SavePolicy,
    ) -> Result<SessionOverview, RuntimeError> {
        let (state, total) = self.state(key).await?;
        let overview = SessionOverview::of(&state);
        let alone = AppendBatch::default().with_row(to_row(&overview));
        if let SavePolicy::Wanted = *saving
            && let Err(error) = self.journal.append_batch(key, total, info.epoch, alone).await
        {
            tracing::debug!(session = %key, %error, "the row of a session was not stored");
            // These errors concern this session only: another process is writing it and stores the row itself, or it was
            // deleted. Any other error would affect all sessions.
            if !matches!(
                error,
                JournalError::StaleEpoch { .. }
                    | JournalError::Conflict { .. }
                    | JournalError::NotFound { .. }
            ) {
                *saving = SavePolicy::GivenUp;
            }
        }
        Ok(overview)
    }
}

/// Whether this may be an event of this kind. Looks only at the beginning of its text, so that most events are not
/// parsed.
pub(crate) fn is_of_kind(recorded: &RecordedEvent, kind: &str) -> bool {
    /// The longest prefix that contains the name of the event, which stands after the version and the time.
    const BEGINNING: usize = 96;
    let name = format!("\"{kind}\"");
    let body: &[u8] = &recorded.body;
    body[..body.len().min(BEGINNING)].windows(name.len()).any(|window| window == name.as_bytes())
}

pub(crate) fn read(key: &SessionKey, recorded: &RecordedEvent) -> Result<Event, RuntimeError> {
    let unreadable = |reason: String| RuntimeError::Unreadable {
        session: key.session,
        reason: format!("event {}: {reason}", recorded.seq),
    };
    if recorded.kind != EVENT_KIND {
        return Err(unreadable(format!("its kind is `{}`, not `{EVENT_KIND}`", recorded.kind)));
    }
    serde_json::from_slice(&recorded.body).map_err(|error| unreadable(error.to_string()))
}

fn not_found(key: &SessionKey, error: JournalError) -> RuntimeError {
    match error {
        JournalError::NotFound { .. } => RuntimeError::NotFound { session: key.session },
        other => RuntimeError::Journal(other),
    }
}
