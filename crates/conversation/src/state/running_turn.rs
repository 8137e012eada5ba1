//! The running turn of a session, and how the last one ended.

use std::collections::BTreeMap;

use conjure_base::{Digest, Timestamp, TurnId};

use crate::compaction::RunningCompaction;
use crate::events::turn_stop::TurnStop;
use crate::model::{SideEffects, Usage};
use crate::state::limits::Limits;
use crate::state::open_call::{CallStatus, OpenCall};

/// The running turn.
#[derive(Debug, Clone, PartialEq)]
pub struct RunningTurn {
    pub(crate) id: TurnId,
    pub(crate) limits: Limits,
    pub(crate) usage: Usage,
    pub(crate) phase: TurnPhase,
    pub(crate) model_calls: u32,
    pub(crate) tool_calls: u32,
    pub(crate) pauses: u32,
    pub(crate) compactions: u32,
    /// How long it has worked up to its last event, in milliseconds.
    pub(crate) elapsed_ms: u64,
    pub(crate) last_event_at: Timestamp,
    /// Whether nothing of the turn runs until an action from outside.
    pub(crate) is_parked: bool,
    /// The calls of the last response with tools, and in how many consecutive responses each was made.
    pub(crate) repeats: BTreeMap<Digest, u32>,
    /// How often each tool was denied.
    pub(crate) denials: BTreeMap<String, Denials>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Denials {
    pub(crate) responses: u32,
    pub(crate) last_call: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TurnPhase {
    /// The model must be called.
    CallModel,
    /// The model call is running, with these side effects.
    AwaitingModel(SideEffects),
    /// The first messages are being summarised; then the model must be called.
    Compacting(RunningCompaction),
    /// The calls of the last response, in order, until all have their result.
    Tools(Vec<OpenCall>),
    /// The last response ends the turn; only the event of the turn's end is not recorded yet.
    Finishing(TurnStop),
}

/// How the last turn ended.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedTurn {
    /// The id of the turn.
    pub turn: TurnId,
    /// Why it ended.
    pub stop: TurnStop,
    /// How often the model was called, failed calls included.
    pub model_calls: u32,
    /// How often a response paused, also when [`Limits::pauses`] forbade to resume it.
    pub pauses: u32,
    /// Its limits.
    pub limits: Limits,
    /// The usage of its model calls.
    pub usage: Usage,
}

impl RunningTurn {
    /// The id of the turn.
    #[must_use]
    pub const fn id(&self) -> TurnId {
        self.id
    }

    /// The limits of the turn.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The usage of its model calls so far.
    #[must_use]
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// How often the model was called, a running call included.
    #[must_use]
    pub const fn model_calls(&self) -> u32 {
        self.model_calls
    }

    /// How many compactions it started, a running one included.
    #[must_use]
    pub const fn compactions(&self) -> u32 {
        self.compactions
    }

    /// How long its model and its tools have worked at `now`.
    ///
    /// Other waits do not count: for an approval, for a driver, or for a process that was down. When a driver ended in the middle
    /// of a call, only the time up to the last earlier event is known, and counts.
    #[must_use]
    pub fn elapsed(&self, now: Timestamp) -> std::time::Duration {
        let under_way = if self.is_active() { millis(now.duration_since(self.last_event_at)) } else { 0 };
        std::time::Duration::from_millis(self.elapsed_ms.saturating_add(under_way))
    }

    /// Whether a call of the model or of a tool is running.
    pub(crate) fn is_active(&self) -> bool {
        match &self.phase {
            TurnPhase::AwaitingModel(_) | TurnPhase::Compacting(_) => true,
            TurnPhase::Tools(calls) => {
                calls.iter().any(|open| matches!(open.status, CallStatus::Started { .. }))
            }
            TurnPhase::CallModel | TurnPhase::Finishing(_) => false,
        }
    }
}

pub(crate) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
