//! The words of the machine: what it is told, what it wants done, and what it knows of a child's policy.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::supervision::backoff::Backoff;
use crate::supervision::exit::ExitClass;
use crate::supervision::id::ChildId;
use crate::supervision::policy::{
    AutoShutdown, Intensity, IntensityScope, OnLimit, Restart, Shutdown, Strategy,
};

/// Which child: keys rise in the order of the children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChildKey(pub(crate) u64);

/// Which incarnation of a child, from 1. Reports of another are late, and dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Generation(pub(crate) u64);

/// Who waits for an answer.
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

/// What the machine needs to know of a child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChildPolicy {
    pub(crate) restart: Restart,
    pub(crate) shutdown: Shutdown,
    pub(crate) backoff: Backoff,
}

/// How the children belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildrenKind {
    /// In order, by a strategy; some of them are there from the start.
    Ordered { strategy: Strategy, auto_shutdown: AutoShutdown },
    /// Each for itself, in any number up to the capacity; all come by request.
    Dynamic {
        capacity: usize,
        intensity_scope: IntensityScope,
        quarantine_after: Option<NonZeroU32>,
        on_limit: OnLimit,
    },
}

/// What the machine needs to know of its supervisor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SupervisorPolicy {
    pub(crate) children_kind: ChildrenKind,
    pub(crate) intensity: Intensity,
}

/// What happened.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// The supervisor runs: its first children are to be started, in this order.
    Boot { children: Vec<(ChildId, ChildPolicy)> },
    /// Somebody wants a child started.
    Start { request: RequestId, id: ChildId, policy: ChildPolicy },
    /// Somebody wants a finished or quarantined child started again.
    Restart { request: RequestId, id: ChildId },
    /// Somebody wants a child stopped and forgotten.
    Terminate { request: RequestId, id: ChildId },
    /// The start of a child is over, and it was good.
    Started { key: ChildKey, generation: Generation },
    /// A child takes no more messages and will end by itself.
    Leaving { key: ChildKey, generation: Generation },
    /// A child ended; something of its subtree may still be there. May be left out: [`Input::Gone`] says it too.
    Ended { key: ChildKey, generation: Generation, exit: ExitClass, random: u64 },
    /// A child ended, and nothing of it or below it is left.
    Gone { key: ChildKey, generation: Generation, exit: ExitClass, random: u64 },
    /// A time that `Machine::next_timer` named has come.
    Tick,
    /// The supervisor is to stop.
    Stop,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The child that this ticket brought (for [`Input::Boot`]: its place) has this key from now on.
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
    /// This child failed too often, and will be forgotten.
    GiveUp {
        key: ChildKey,
    },
    /// Nothing is left to know of this child.
    Remove {
        key: ChildKey,
    },
    /// All the first children have started.
    Ready,
    /// The supervisor begins to stop.
    Stopping {
        cause: StopCause,
    },
    /// No child is left: the supervisor ends.
    Exit {
        cause: StopCause,
    },
}

/// The state of a child, as others see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildStatus {
    /// It was not started yet: those before it come first.
    Waiting,
    Starting,
    Running,
    /// It was asked to stop, or ends by itself, or ended and is not wholly gone.
    Stopping,
    /// It failed, and is started again at this time, or when the others of its group are gone.
    Pending {
        due: Uptime,
    },
    /// It is done.
    Finished,
    Quarantined,
}

/// What a caller is told.
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
    /// It was terminated before its start was over.
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
    /// This child, one of its first, did not start.
    StartFailed(ChildKey),
}
