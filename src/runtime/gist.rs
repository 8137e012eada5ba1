//! What lists tell of a session, kept as the journal's snapshot of it, so that a list reads only what came since.
//!
//! It is kept when a session rests, by whoever read it: no turn runs and none waits, so that what comes later can be understood
//! without what came before. State: the snapshot, in the journal. It saves time and is nothing more: one that is missing, of
//! another version or of no use is made anew of all events. As all that is recorded, it is as it was said; what must not leave is
//! redacted where it leaves.

use std::collections::BTreeMap;

use conjure_conversation::{Event, EventKind, Role, State, TurnStop, Usage, apply};
use conjure_journal::Snapshot;
use serde::{Deserialize, Serialize};

/// The version of the snapshots that hold one.
const VERSION: u32 = 1;

/// So many events must have come before it is worth keeping anew.
const WORTH: u64 = 64;

/// A session, in short.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gist {
    pub(crate) turns: u64,
    pub(crate) last_stop: Option<TurnStop>,
    pub(crate) last_text: String,
    pub(crate) usage: Usage,
    pub(crate) model: Option<String>,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// A session that is being read.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// What was kept.
    before: Gist,
    turns: u64,
    /// What the events since amount to.
    state: State,
    from: u64,
    next: u64,
}

impl Reading {
    /// Begins where a snapshot ends, if it is one of ours and covers no more than there is.
    pub(crate) fn after(snapshot: Option<Snapshot>, events: u64) -> Self {
        let kept = snapshot.filter(|kept| kept.version == VERSION && kept.seq <= events);
        let begun = kept.and_then(|kept| Some((serde_json::from_slice(&kept.body).ok()?, kept.seq)));
        let Some((before, from)) = begun else { return Self::default() };
        Self { before, from, next: from, ..Self::default() }
    }

    /// The next event to be read.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn take(&mut self, event: &Event) {
        self.turns += u64::from(matches!(event.kind, EventKind::TurnStarted { .. }));
        apply(&mut self.state, event);
        self.next += 1;
    }

    /// Of what runs, all of it; of what is over, what came since.
    pub(crate) const fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn gist(&self) -> Gist {
        let (before, state) = (&self.before, &self.state);
        let mut usage = before.usage;
        usage.add(state.usage());
        let has_text = state.messages().iter().any(|message| message.role == Role::Assistant);
        let profile = state.profile();
        Gist {
            turns: before.turns + self.turns,
            last_stop: state.last_turn().map(|turn| turn.stop.clone()).or_else(|| before.last_stop.clone()),
            last_text: if has_text { state.last_text() } else { before.last_text.clone() },
            usage,
            model: profile.map_or_else(|| before.model.clone(), |profile| profile.model.clone()),
            metadata: profile.map_or_else(|| before.metadata.clone(), |profile| profile.metadata.clone()),
        }
    }

    /// The snapshot to keep, where it is worth it.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let rests = self.state.turn().is_none() && self.state.queue().len() == 0;
        if !rests || self.next - self.from < WORTH {
            return None;
        }
        let body = serde_json::to_vec(&self.gist()).ok()?;
        Some(Snapshot { seq: self.next, version: VERSION, body })
    }
}

#[cfg(test)]
#[path = "gist/tests.rs"]
mod tests;
