//! The summary of a session for lists. It is stored as the session's journal snapshot, so that a list reads only
//! later events.
//!
//! A reader stores it when the session is at rest: no turn runs or waits, so later events can be understood without
//! earlier ones. State: the snapshot in the journal. It only saves time: a missing or outdated one is built again
//! from all events. Like all that is recorded it is unredacted; secrets are redacted where it leaves the process.

use std::collections::BTreeMap;

use conjure_conversation::{Event, EventKind, Role, SessionState, TurnStop, Usage, apply};
use conjure_journal::Snapshot;
use serde::{Deserialize, Serialize};

/// The version of the snapshot format.
const VERSION: u32 = 1;

/// How many events must have been added before it is stored again.
const MIN_EVENTS_TO_SAVE: u64 = 64;

/// The summary of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionProjection {
    pub(crate) turns: u64,
    pub(crate) last_stop: Option<TurnStop>,
    pub(crate) last_text: String,
    pub(crate) usage: Usage,
    pub(crate) model: Option<String>,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// Builds the summary of a session from a snapshot and the events after it.
#[derive(Debug, Default)]
pub(crate) struct ProjectionBuilder {
    /// The stored summary.
    before: SessionProjection,
    turns: u64,
    /// The state after the later events.
    state: SessionState,
    from: u64,
    next: u64,
}

impl ProjectionBuilder {
    /// Starts at a snapshot, if it has our version and covers no more events than there are.
    pub(crate) fn from_snapshot(snapshot: Option<Snapshot>, events: u64) -> Self {
        let kept = snapshot.filter(|kept| kept.version == VERSION && kept.seq <= events);
        let begun = kept.and_then(|kept| Some((serde_json::from_slice(&kept.body).ok()?, kept.seq)));
        let Some((before, from)) = begun else { return Self::default() };
        Self { before, from, next: from, ..Self::default() }
    }

    /// The next event to read.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        self.turns += u64::from(matches!(event.kind, EventKind::TurnStarted { .. }));
        apply(&mut self.state, event);
        self.next += 1;
    }

    /// The state: complete for a turn that runs, and partial for finished turns.
    pub(crate) const fn state(&self) -> &SessionState {
        &self.state
    }

    pub(crate) fn projection(&self) -> SessionProjection {
        let (before, state) = (&self.before, &self.state);
        let mut usage = before.usage;
        usage.add(state.usage());
        let has_text = state.messages().iter().any(|message| message.role == Role::Assistant);
        let profile = state.profile();
        SessionProjection {
            turns: before.turns + self.turns,
            last_stop: state.last_turn().map(|turn| turn.stop.clone()).or_else(|| before.last_stop.clone()),
            last_text: if has_text { state.last_text() } else { before.last_text.clone() },
            usage,
            model: profile.map_or_else(|| before.model.clone(), |profile| profile.model.clone()),
            metadata: profile.map_or_else(|| before.metadata.clone(), |profile| profile.metadata.clone()),
        }
    }

    /// The snapshot to store, if that is worth it.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let rests = self.state.turn().is_none() && self.state.queue().len() == 0;
        if !rests || self.next - self.from < MIN_EVENTS_TO_SAVE {
            return None;
        }
        let body = serde_json::to_vec(&self.projection()).ok()?;
        Some(Snapshot { seq: self.next, version: VERSION, body })
    }
}

#[cfg(test)]
mod tests;
