//! A session's state together with its event log. Only this type records events and applies them.
//!
//! The event log is the source of truth; the conversation holds a copy of the state. When an append fails, or its future is dropped,
//! the copy is stale. It is read again from the event log before the next command.

use std::sync::Arc;

use conjure_base::Clock;

use crate::events::event::{Event, EventKind};
use crate::events::event_log::{EventLog, EventLogError};
use crate::machine::command::{Command, CommandKind, Rejection};
use crate::machine::decide;
use crate::model::ModelEvent;
use crate::state::apply::apply;
use crate::state::running_turn::FinishedTurn;
use crate::state::session_state::SessionState;
use crate::tools::tool_progress::ToolProgress;

/// Watches a session. The methods are called inline, so they must not block.
pub trait ConversationObserver: Send + Sync {
    /// An event was recorded under this sequence number, from 0.
    fn on_recorded(&self, _seq: u64, _event: &Event) {}

    /// The session's artifacts or files have changed; `state` is the new state. It is called right before `on_recorded` for that event.
    fn on_assets_changed(&self, _state: &SessionState) {}

    /// The calls that wait for an action from outside have changed, or the turn was parked or resumed; `state` is the new state. It
    /// is called right before `on_recorded` for that event.
    fn on_actions_changed(&self, _state: &SessionState) {}

    /// A turn has ended. It is called right before `on_recorded` for that event.
    fn on_turn_finished(&self, _turn: &FinishedTurn) {}

    /// The model streams a part of its response. This is a preview: only a recorded response counts.
    fn on_preview(&self, _event: &ModelEvent) {}

    /// A tool reports the progress of a running call. This is a preview too.
    fn on_tool_progress(&self, _progress: &ToolProgress) {}
}

/// Ignores all events.
impl ConversationObserver for () {}

/// A session's state and its event log.
pub struct Conversation {
    event_log: Arc<dyn EventLog>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn ConversationObserver>,
    state: SessionState,
    seq: u64,
    cache: StateCache,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StateCache {
    /// The state includes all recorded events.
    Fresh,
    /// An append is running or has failed: the content of the event log is not known.
    Stale,
}

/// Why a command had no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The state machine rejected it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The event log failed. The state is loaded again before the next command.
    #[error(transparent)]
    EventLog(#[from] EventLogError),
}

impl Conversation {
    /// Loads a session from its event log; an empty log is a new session. If a driver has ended in the middle of its work, submit
    /// [`CommandKind::Recover`]; [`crate::run_turn`] does so itself.
    ///
    /// # Errors
    /// When the event log cannot be read.
    pub async fn load(
        event_log: Arc<dyn EventLog>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn ConversationObserver>,
    ) -> Result<Self, EventLogError> {
        let mut conversation = Self {
            event_log,
            clock,
            observer,
            state: SessionState::default(),
            seq: 0,
            cache: StateCache::Stale,
        };
        conversation.read().await?;
        Ok(conversation)
    }

    /// Whether the state includes all recorded events. It is stale after an append with an unknown outcome. Then the next command
    /// reads it again.
    #[must_use]
    pub const fn is_fresh(&self) -> bool {
        matches!(self.cache, StateCache::Fresh)
    }

    /// The state after the last event that is known to be recorded.
    #[must_use]
    pub const fn state(&self) -> &SessionState {
        &self.state
    }

    /// How many events are known to be recorded.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn observer(&self) -> &Arc<dyn ConversationObserver> {
        &self.observer
    }

    /// Decides, records, applies and notifies the observer, in this order.
    ///
    /// # Errors
    /// When the state machine rejects the command, or the event log fails.
    pub async fn submit(&mut self, kind: CommandKind) -> Result<(), SubmitError> {
        self.refresh().await?;
        let events = decide(&self.state, Command { at: self.clock.timestamp(), kind })?;
        if events.is_empty() {
            return Ok(());
        }
        // Until the append has returned, the content of the log is not known, also when this future is dropped here.
        self.cache = StateCache::Stale;
        let seq = self.event_log.append_after(&self.state, self.seq, &events).await?;
        let first = std::mem::replace(&mut self.seq, seq);
        for event in &events {
            apply(&mut self.state, event);
        }
        self.cache = StateCache::Fresh;
        for (seq, event) in (first..).zip(&events) {
            self.notify(seq, event);
        }
        Ok(())
    }

    /// Notifies the observer of an event that was applied.
    fn notify(&self, seq: u64, event: &Event) {
        if let EventKind::TurnFinished { turn, .. } = &event.kind
            && let Some(last) = self.state.last_turn().filter(|last| last.turn == *turn)
        {
            self.observer.on_turn_finished(last);
        }
        if changes_assets(&event.kind) {
            self.observer.on_assets_changed(&self.state);
        }
        if changes_actions(&event.kind) {
            self.observer.on_actions_changed(&self.state);
        }
        self.observer.on_recorded(seq, event);
    }

    /// Reads the state from the event log if it is stale. The observer is notified of events that were recorded without an acknowledgement.
    async fn refresh(&mut self) -> Result<(), EventLogError> {
        if !self.is_fresh() {
            let known = self.seq;
            let events = self.read().await?;
            for (seq, event) in (0..).zip(&events).skip_while(|(seq, _)| *seq < known) {
                self.notify(seq, event);
            }
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<Vec<Event>, EventLogError> {
        let events = self.event_log.load().await?;
        let mut state = SessionState::default();
        for event in &events {
            apply(&mut state, event);
        }
        (self.state, self.seq) = (state, events.len() as u64);
        self.cache = StateCache::Fresh;
        Ok(events)
    }
}

/// Whether an event changes which calls wait for an action from outside.
const fn changes_actions(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::ApprovalRequested { .. }
            | EventKind::ApprovalDecided { .. }
            | EventKind::ResultRequested { .. }
            | EventKind::ResultProvided { .. }
            | EventKind::InputRequired { .. }
            | EventKind::InputProvided { .. }
            | EventKind::ActionRequired { .. }
            | EventKind::ToolStarted { .. }
            | EventKind::ToolFinished { .. }
    )
}

/// Whether an event changes the artifacts or the files of a session.
fn changes_assets(kind: &EventKind) -> bool {
    match kind {
        EventKind::ArtifactRegistered { .. }
        | EventKind::ArtifactUnregistered { .. }
        | EventKind::ArtifactFetched { .. }
        | EventKind::FilesProduced { .. } => true,
        EventKind::ToolFinished { result, .. } => !result.fetched.is_empty(),
        _ => false,
    }
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversation").field("seq", &self.seq).finish_non_exhaustive()
    }
}
