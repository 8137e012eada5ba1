//! The words of the machine: what it is told, what it wants done, and what it knows of a child's policy.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::supervision::backoff::Backoff;
use crate::supervision::exit::ExitClass;
use crate::supervision::id::ChildId;
use crate::supervision::policy::{AutoShutdown, Domain, GivenUp, Intensity, Restart, Shutdown, Strategy};

/// Which child: keys rise in the order of the children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(pub(crate) u64);

/// Which incarnation of a child, from 1. Reports of another are late, and dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Generation(pub(crate) u64);

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub(crate) u64);

/// A time, as the duration since the supervisor's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Moment(pub(crate) Duration);

impl Moment {
    pub(crate) fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// What the machine needs to know of a child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) restart: Restart,
    pub(crate) shutdown: Shutdown,
    pub(crate) backoff: Backoff,
}

/// How the children belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// In order, by a strategy; some of them are there from the start.
    Ordered { strategy: Strategy, auto_shutdown: AutoShutdown },
    /// Each for itself, in any number up to the capacity; all come by request.
    Dynamic { capacity: usize, domain: Domain, quarantine_after: Option<NonZeroU32>, given_up: GivenUp },
}

/// What the machine needs to know of its supervisor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) shape: Shape,
    pub(crate) intensity: Intensity,
}

/// What happened.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// The supervisor runs: its first children are to be started, in this order.
    Boot { children: Vec<(ChildId, Policy)> },
    /// Somebody wants a child started.
    Start { ticket: Ticket, id: ChildId, policy: Policy },
    /// Somebody wants a finished or quarantined child started again.
    Restart { ticket: Ticket, id: ChildId },
    /// Somebody wants a child stopped and forgotten.
    Terminate { ticket: Ticket, id: ChildId },
    /// The start of a child is over, and it was good.
    Started { key: Key, generation: Generation },
    /// A child takes no more messages and will end by itself.
    Leaving { key: Key, generation: Generation },
    /// A child ended; something of its subtree may still be there. May be left out: [`Input::Gone`] says it too.
    Ended { key: Key, generation: Generation, exit: ExitClass, roll: u64 },
    /// A child ended, and nothing of it or below it is left.
    Gone { key: Key, generation: Generation, exit: ExitClass, roll: u64 },
    /// A time that `Machine::next_timer` named has come.
    Tick,
    /// The supervisor is to stop.
    Stop,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The child that this ticket brought (for [`Input::Boot`]: its place) has this key from now on.
    Adopt {
        ticket: Option<Ticket>,
        id: ChildId,
        key: Key,
    },
    Spawn {
        key: Key,
        generation: Generation,
    },
    Stop {
        key: Key,
    },
    Kill {
        key: Key,
    },
    Became {
        key: Key,
        state: State,
    },
    Answer {
        ticket: Ticket,
        answer: Answer,
    },
    /// This child failed too often, and will be forgotten.
    GiveUp {
        key: Key,
    },
    /// Nothing is left to know of this child.
    Forget {
        key: Key,
    },
    /// All the first children have started.
    Ready,
    /// The supervisor begins to stop.
    Closing {
        why: Why,
    },
    /// No child is left: the supervisor ends.
    Exit {
        why: Why,
    },
}

/// The state of a child, as others see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It was not started yet: those before it come first.
    Waiting,
    Starting,
    Running,
    /// It was asked to stop, or ends by itself, or ended and is not wholly gone.
    Stopping,
    /// It failed, and is started again at this time, or when the others of its group are gone.
    Pending {
        due: Moment,
    },
    /// It is done.
    Finished,
    Quarantined,
}

/// What a caller is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Started {
        key: Key,
    },
    AlreadyStarted {
        key: Key,
    },
    Quarantined {
        key: Key,
    },
    StartFailed {
        key: Key,
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
pub(crate) enum Why {
    Asked,
    Meltdown,
    Significant,
    /// This child, one of its first, did not start.
    StartFailed(Key),
}
