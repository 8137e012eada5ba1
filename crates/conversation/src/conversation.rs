//! A session's state together with its ledger: the one place where events are recorded and then applied.
//!
//! It owns a copy of the state; the ledger owns the truth. When an append fails, or the future that waited for
//! it is dropped, the copy is given up and read anew from the ledger before the next command.

use std::sync::Arc;

use conjure_base::Clock;

use crate::apply::apply;
use crate::command::{Command, CommandKind, Rejection};
use crate::event::{Event, EventKind};
use crate::ledger::{Ledger, LedgerError};
use crate::machine::decide;
use crate::model::ModelEvent;
use crate::state::{FinishedTurn, State};

/// Watches a session. Called in line, so it must return at once: hand over, do not work.
pub trait Observer: Send + Sync {
    /// This event was recorded at this place, from 0.
    fn recorded(&self, _seq: u64, _event: &Event) {}

    /// The session's artifacts have changed, or it is known which files a turn produced, and this is the state by now. Told right
    /// before the event that says so.
    fn belongings(&self, _state: &State) {}

    /// A turn is over, and was so. Told right before the event that says so.
    fn finished(&self, _turn: &FinishedTurn) {}

    /// The model says something. A preview: only a recorded answer counts.
    fn preview(&self, _event: &ModelEvent) {}
}

/// Nobody watches.
impl Observer for () {}

/// A session's state and its ledger.
pub struct Conversation {
    ledger: Arc<dyn Ledger>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    state: State,
    seq: u64,
    freshness: Freshness,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    /// The state is what the ledger holds.
    Current,
    /// An append is under way, or failed: what the ledger holds is not known.
    Unknown,
}

/// Why a command had no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The machine refused it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The ledger did not record it. The state is loaded anew before the next command.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Conversation {
    /// Loads a session from its ledger; an empty ledger is a new session. When anything was under way, submit
    /// [`CommandKind::Recover`]; [`crate::run_turn`] does so by itself.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn load(
        ledger: Arc<dyn Ledger>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, LedgerError> {
        let mut conversation =
            Self { ledger, clock, observer, state: State::default(), seq: 0, freshness: Freshness::Unknown };
        conversation.read().await?;
        Ok(conversation)
    }

    /// Whether the state is what is recorded. It is not known after an append of which nobody knows whether it was recorded;
    /// the next command reads the state anew.
    #[must_use]
    pub const fn is_current(&self) -> bool {
        matches!(self.freshness, Freshness::Current)
    }

    /// The state as of the last event that is known here to be recorded.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// How many events are known here to be recorded.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn observer(&self) -> &Arc<dyn Observer> {
        &self.observer
    }

    /// Decides, records, applies and tells the observer, in this order.
    ///
    /// # Errors
    /// When the machine refuses the command, or the ledger does not record its events.
    pub async fn submit(&mut self, kind: CommandKind) -> Result<(), SubmitError> {
        self.refresh().await?;
        let events = decide(&self.state, Command { at: self.clock.timestamp(), kind })?;
        if events.is_empty() {
            return Ok(());
        }
        // Until the ledger has answered, nobody knows what it holds: also when this future is dropped here.
        self.freshness = Freshness::Unknown;
        let seq = self.ledger.append(self.seq, &events).await?;
        let first = std::mem::replace(&mut self.seq, seq);
        for event in &events {
            apply(&mut self.state, event);
        }
        self.freshness = Freshness::Current;
        for (seq, event) in (first..).zip(&events) {
            self.tell(seq, event);
        }
        Ok(())
    }

    /// Tells the observer of an event that was applied.
    fn tell(&self, seq: u64, event: &Event) {
        if let EventKind::TurnFinished { turn, .. } = &event.kind
            && let Some(last) = self.state.last_turn().filter(|last| last.turn == *turn)
        {
            self.observer.finished(last);
        }
        if concerns_belongings(&event.kind) {
            self.observer.belongings(&self.state);
        }
        self.observer.recorded(seq, event);
    }

    /// Reads the state from the ledger where it is not known to be current. The observer is told what was recorded without
    /// being acknowledged.
    async fn refresh(&mut self) -> Result<(), LedgerError> {
        if !self.is_current() {
            let known = self.seq;
            let events = self.read().await?;
            for (seq, event) in (0..).zip(&events).skip_while(|(seq, _)| *seq < known) {
                self.tell(seq, event);
            }
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<Vec<Event>, LedgerError> {
        let events = self.ledger.load().await?;
        let mut state = State::default();
        for event in &events {
            apply(&mut state, event);
        }
        (self.state, self.seq) = (state, events.len() as u64);
        self.freshness = Freshness::Current;
        Ok(events)
    }
}

/// Whether an event changes the artifacts or the files of a session.
fn concerns_belongings(kind: &EventKind) -> bool {
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
