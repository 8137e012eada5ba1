//! What is recorded of sessions, read without starting them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use conjure_actors::journal::JournalAccess;
use conjure_actors::session::{EVENT_KIND, SessionStatus, redact_event, redact_stop};
use conjure_base::{Clock as _, Digest, Redactor, SessionId, SystemClock, TenantId, Timestamp};
use conjure_conversation::{
    Artifact, Event, EventKind, Profile, SessionEvent, SessionFile, State, Step, TurnStop, Usage, apply,
    next, session_events,
};
use conjure_journal::{
    EventPage, Journal, JournalError, ListCursor, Owner, PageLimit, Recorded, SessionInfo, SessionKey,
    load_all,
};

use super::error::RuntimeError;
use super::gist::Reading;
use super::hosts::Presence;
use super::outfit::blocking;

/// Some of a tenant's sessions, the newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionList {
    /// The sessions.
    pub sessions: Vec<SessionSummary>,
    /// Where to go on; `None` when these were the last.
    pub next: Option<ListCursor>,
}

/// A session, in short.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SessionSummary {
    /// Which.
    pub id: SessionId,
    /// When it was opened.
    pub opened: Timestamp,
    /// When something was last recorded.
    pub updated: Timestamp,
    /// How many events are recorded.
    pub events: u64,
    /// Which process has it now; `None`: it is put away.
    pub held_by: Option<Owner>,
    /// What is in it.
    pub contents: Contents,
}

/// What is in a session.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Contents {
    /// Its record was read.
    Read(Box<SessionContents>),
    /// Its record cannot be read; others are not touched by that.
    Unreadable {
        /// Why not.
        reason: String,
    },
}

/// What a session's record comes to.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SessionContents {
    /// What it does.
    pub status: SessionStatus,
    /// How many turns it has had, one that runs among them.
    pub turns: u64,
    /// How the last turn that is over ended. What this process knows to be secret is redacted in it.
    pub last_stop: Option<TurnStop>,
    /// The text of the last answer. What this process knows to be secret is redacted in it.
    pub last_text: String,
    /// What all its model calls consumed, as far as their turns are over.
    pub usage: Usage,
    /// The model's name.
    pub model: Option<String>,
    /// The host's notes.
    pub metadata: BTreeMap<String, String>,
}

/// Reads records.
pub(crate) struct Records {
    journal: Arc<dyn Journal>,
    /// Who is known to be dead; `None`: nobody else has the data.
    presence: Option<Arc<Presence>>,
}

/// Whether what was read is kept for the next time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeping {
    Wanted,
    /// It failed.
    GivenUp,
}

impl Records {
    /// Of the journal that is open.
    pub(crate) async fn of(
        access: &JournalAccess,
        presence: Option<Arc<Presence>>,
    ) -> Result<Self, RuntimeError> {
        let journal = access.journal().await;
        let journal = journal.map_err(|error| RuntimeError::JournalAway { reason: error.to_string() })?;
        Ok(Self { journal, presence })
    }

    pub(crate) fn journal(&self) -> &Arc<dyn Journal> {
        &self.journal
    }

    /// What is known of a session without its events.
    pub(crate) async fn info(&self, key: &SessionKey) -> Result<SessionInfo, RuntimeError> {
        self.journal.session(key).await.map_err(|error| not_found(key, error))
    }

    /// What a session was opened with.
    pub(crate) async fn profile(&self, key: &SessionKey) -> Result<Profile, RuntimeError> {
        let first = self.journal.load(key, 0, PageLimit { events: 1, ..PageLimit::default() }).await;
        let page = first.map_err(|error| not_found(key, error))?;
        let Some(recorded) = page.events.first() else { return Ok(Profile::default()) };
        match read(key, recorded)?.kind {
            EventKind::Opened { profile } => Ok(*profile),
            _ => Ok(Profile::default()),
        }
    }

    /// Some of a session's events, from this one on.
    pub(crate) async fn page(
        &self,
        key: &SessionKey,
        from: u64,
        limit: PageLimit,
    ) -> Result<EventPage, RuntimeError> {
        self.journal.load(key, from, limit).await.map_err(|error| not_found(key, error))
    }

    /// Leaves of these contents of skills those that no session of the tenant has. Reads the first event of each session, the
    /// newest first, until all are found.
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
                match self.profile(&SessionKey::new(tenant.clone(), info.session)).await {
                    Ok(profile) => {
                        for skill in &profile.skills {
                            unused.remove(&skill.digest);
                        }
                    }
                    // It was deleted meanwhile.
                    Err(RuntimeError::NotFound { .. }) => {}
                    // What it has is not known.
                    Err(error) => return Err(error),
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// A session's artifacts, and the files that its turns produced.
    pub(crate) async fn belongings(
        &self,
        key: &SessionKey,
    ) -> Result<(Vec<Artifact>, Vec<SessionFile>), RuntimeError> {
        let recorded = load_all(&*self.journal, key, 0).await.map_err(|error| not_found(key, error))?;
        let mut state = State::default();
        for recorded in &recorded {
            apply(&mut state, &read(key, recorded)?);
        }
        let artifacts = state.standing().artifacts().iter().map(|artifact| Artifact::clone(artifact));
        Ok((artifacts.collect(), state.files().cloned().collect()))
    }

    /// Everything that a session told, from this event on.
    pub(crate) async fn events(
        &self,
        key: &SessionKey,
        from_seq: u64,
        redactor: &Redactor,
    ) -> Result<Vec<SessionEvent>, RuntimeError> {
        let recorded =
            load_all(&*self.journal, key, from_seq).await.map_err(|error| not_found(key, error))?;
        let mut told = Vec::new();
        for recorded in &recorded {
            if let Some(event) = redact_event(redactor, &read(key, recorded)?) {
                told.extend(session_events(key.session, recorded.seq, &event));
            }
        }
        Ok(told)
    }

    /// A page of a tenant's sessions. Reads of each what came since it was read last.
    pub(crate) async fn list(
        &self,
        tenant: &TenantId,
        after: Option<ListCursor>,
        limit: u32,
        redactor: impl Fn(&SessionKey) -> Redactor,
    ) -> Result<SessionList, RuntimeError> {
        let page = self.journal.sessions(tenant, after, limit).await?;
        let mut sessions = Vec::with_capacity(page.sessions.len());
        let mut keeping = Keeping::Wanted;
        for (info, held_by) in self.held(page.sessions).await? {
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

    /// A session, in short. Reads what came since it was read last.
    pub(crate) async fn summary(
        &self,
        key: &SessionKey,
        info: SessionInfo,
        redactor: &Redactor,
    ) -> Result<SessionSummary, RuntimeError> {
        let mut keeping = Keeping::Wanted;
        let held = self.held(vec![info]).await?.pop();
        let Some((info, held_by)) = held else { return Err(RuntimeError::NotFound { session: key.session }) };
        self.read_summary(key, info, held_by, redactor, &mut keeping).await
    }

    /// The sessions, with who has them: who is dead has none.
    async fn held(&self, infos: Vec<SessionInfo>) -> Result<Vec<(SessionInfo, Option<Owner>)>, RuntimeError> {
        let (now, presence) = (SystemClock.timestamp(), self.presence.clone());
        blocking("looking who lives", move || {
            let mut dead: HashMap<Owner, bool> = HashMap::new();
            let mut is_dead = |owner: &Owner| {
                let Some(presence) = &presence else { return false };
                *dead.entry(owner.clone()).or_insert_with(|| presence.is_dead(owner))
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
        held_by: Option<Owner>,
        redactor: &Redactor,
        keeping: &mut Keeping,
    ) -> Result<SessionSummary, RuntimeError> {
        let contents = match self.contents(key, &info, held_by.is_some(), redactor, keeping).await {
            Ok(contents) => Contents::Read(Box::new(contents)),
            Err(error @ RuntimeError::NotFound { .. }) => return Err(error),
            Err(error) => Contents::Unreadable { reason: error.to_string() },
        };
        Ok(SessionSummary {
            id: info.session,
            opened: info.created,
            updated: info.updated,
            events: info.events,
            held_by,
            contents,
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
        keeping: &mut Keeping,
    ) -> Result<SessionContents, RuntimeError> {
        let kept = match info.snapshot {
            // One that is damaged is of no use, and does no harm.
            Some(_) => self.journal.snapshot(key).await.unwrap_or_default(),
            None => None,
        };
        let mut reading = Reading::after(kept, info.events);
        loop {
            let page = self.journal.load(key, reading.next(), PageLimit::default()).await;
            let page = page.map_err(|error| not_found(key, error))?;
            for recorded in &page.events {
                reading.take(&read(key, recorded)?);
            }
            if page.next().is_none() {
                break;
            }
        }
        if let (Keeping::Wanted, Some(snapshot)) = (*keeping, reading.snapshot())
            && let Err(error) = self.journal.save_snapshot(key, info.epoch, snapshot).await
        {
            tracing::debug!(session = %key, %error, "what lists tell is not kept");
            // Whoever has it is writing; what else there is would fail for all others, too.
            if !matches!(error, JournalError::StaleEpoch { .. } | JournalError::NotFound { .. }) {
                *keeping = Keeping::GivenUp;
            }
        }
        let (gist, state) = (reading.gist(), reading.state());
        Ok(SessionContents {
            status: match state.turn() {
                None => SessionStatus::Idle,
                Some(turn) if next(state) == Step::AwaitApproval => {
                    SessionStatus::AwaitingApproval(turn.id())
                }
                Some(turn) if is_held => SessionStatus::Running(turn.id()),
                Some(turn) => SessionStatus::Interrupted(turn.id()),
            },
            turns: gist.turns,
            last_stop: gist.last_stop.map(|stop| redact_stop(redactor, &stop)),
            last_text: redactor.redact(&gist.last_text).into_owned(),
            usage: gist.usage,
            model: gist.model,
            metadata: gist.metadata,
        })
    }
}

pub(crate) fn read(key: &SessionKey, recorded: &Recorded) -> Result<Event, RuntimeError> {
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
