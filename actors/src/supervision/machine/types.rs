//! The types of the machine: inputs, effects, and the policy of a child.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::supervision::specs::backoff::Backoff;
use crate::supervision::specs::exit::ExitClass;
use crate::supervision::specs::id::ChildId;
use crate::supervision::specs::policy::{
    AutoShutdown, Intensity, IntensityScope, OnLimit, Restart, Shutdown, Strategy,
};

/// The key of a child. Keys increase in the order of the children, and are not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChildKey(pub(crate) u64);

/// The number of an incarnation of a child, from 1. Reports about earlier incarnations are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Generation(pub(crate) u64);

/// A caller that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequestId(pub(crate) u64);

/// A time, as the duration since the supervisor's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Uptime(pub(crate) Duration);

impl Uptime {
    pub(crate) fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The policy of a child, as far as the machine needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChildPolicy {
    pub(crate) restart: Restart,
    pub(crate) shutdown: Shutdown,
    pub(crate) backoff: Backoff,
}

/// How the children relate to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildrenKind {
    /// They have an order and a strategy. Some exist from the start.
    Ordered { strategy: Strategy, auto_shutdown: AutoShutdown },
    /// Each is independent, in any number up to the capacity. All are added by requests.
    Dynamic {
        capacity: usize,
        intensity_scope: IntensityScope,
        quarantine_after: Option<NonZeroU32>,
        on_limit: OnLimit,
    },
}

/// The policy of the supervisor, as far as the machine needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SupervisorPolicy {
    pub(crate) children_kind: ChildrenKind,
    pub(crate) intensity: Intensity,
}

/// An input of the machine.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// The supervisor runs. It must start its initial children in this order.
    Boot { children: Vec<(ChildId, ChildPolicy)> },
    /// A caller wants a child started.
    Start { request: RequestId, id: ChildId, policy: ChildPolicy },
    /// A caller wants a finished or quarantined child restarted.
    Restart { request: RequestId, id: ChildId },
    /// A caller wants a child stopped and removed.
    Terminate { request: RequestId, id: ChildId },
    /// The start of a child succeeded.
    Started { key: ChildKey, generation: Generation },
    /// A child accepts no more messages and will end by itself.
    Leaving { key: ChildKey, generation: Generation },
    /// A child ended; its subtree may still exist. This input may be missing, because [`Input::Gone`] implies it.
    Ended { key: ChildKey, generation: Generation, exit: ExitClass, random: u64 },
    /// A child ended, and nothing of it or below it is left.
    Gone { key: ChildKey, generation: Generation, exit: ExitClass, random: u64 },
    /// The timer of [`Machine::next_timer`](super::Machine::next_timer) expired.
    Tick,
    /// The supervisor must stop.
    Stop,
}

/// An effect that the driver carries out. Effects must be carried out in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// From now on, this key stands for the child that the request brought. Without a request, it is the initial child
    /// with this id.
    Insert {
        request: Option<RequestId>,
        id: ChildId,
        key: ChildKey,
    },
    Spawn {
        key: ChildKey,
        generation: Generation,
    },
    Stop {
        key: ChildKey,
    },
    Kill {
        key: ChildKey,
    },
    StatusChanged {
        key: ChildKey,
        status: ChildStatus,
    },
    Reply {
        request: RequestId,
        reply: RequestReply,
    },
    /// This child failed too often and will be removed.
    GiveUp {
        key: ChildKey,
    },
    /// The child is removed. The driver drops everything about it.
    Remove {
        key: ChildKey,
    },
    /// All initial children have started.
    Ready,
    /// The supervisor starts to stop.
    Stopping {
        cause: StopCause,
    },
    /// No child is left, and the supervisor ends.
    Exit {
        cause: StopCause,
    },
}

/// The status of a child, as callers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildStatus {
    /// It was not started yet, because earlier siblings must start first.
    Waiting,
    Starting,
    Running,
    /// It was asked to stop, stops by itself, or has ended but is not completely gone.
    Stopping,
    /// It failed or belongs to the group of a failed child. It is restarted at this time, or when its group is gone.
    Pending {
        due: Uptime,
    },
    /// It has finished.
    Finished,
    Quarantined,
}

/// The answer to a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestReply {
    Started {
        key: ChildKey,
    },
    AlreadyStarted {
        key: ChildKey,
    },
    Quarantined {
        key: ChildKey,
    },
    StartFailed {
        key: ChildKey,
    },
    Full {
        capacity: usize,
    },
    /// It was terminated during its start.
    Cancelled,
    ShuttingDown,
    NotFound,
    /// The child is stopped and gone.
    Terminated,
}

/// Why a supervisor stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopCause {
    Requested,
    Meltdown,
    Significant,
    /// This initial child did not start.
    StartFailed(ChildKey),
}
