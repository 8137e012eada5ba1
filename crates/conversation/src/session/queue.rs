//! The durable queue of a session: inputs of the user that wait for a turn of their own, first in, first out.
//!
//! The queue is part of the state, so it survives a restart. The event that starts a turn removes the turn's input from the queue. The
//! queue is bounded: an input that does not fit is rejected.

use std::fmt;

use conjure_base::Timestamp;
use serde::{Deserialize, Serialize};

use crate::content::block::Block;
use crate::state::limits::Limits;

/// The maximum number of inputs that wait for a turn.
pub const QUEUE_LIMIT: usize = 64;

/// The id of a queued input. Ids count from 1 and are never reused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QueueId(u64);

impl QueueId {
    /// Its number, from 1.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An input that waits for its turn.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedInput {
    /// The id of the input.
    pub id: QueueId,
    /// When it was queued.
    pub at: Timestamp,
    /// The user's input.
    pub input: Vec<Block>,
    /// The limits of its turn, if the sender set any.
    pub limits: Option<Limits>,
}
