//! What the machine knows of one child.

use super::intensity::IntensityWindow;
use super::types::{ChildKey, ChildPolicy, ChildStatus, RequestId, Uptime};
use crate::supervision::exit::ExitClass;
use crate::supervision::id::ChildId;

#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(crate) id: ChildId,
    pub(crate) policy: ChildPolicy,
    pub(crate) phase: Phase,
    /// How often it was spawned.
    pub(crate) spawned: u64,
    /// What its next good start is to those who asked for it; `None` once it had one.
    pub(crate) start_cause: Option<StartCause>,
    /// When this incarnation's start was over.
    pub(crate) up_since: Option<Uptime>,
    /// Its turn to be stopped will come, and then this is its fate.
    pub(crate) marked: Option<AfterExit>,
    /// Failures since it last ran for its healthy time.
    pub(crate) failures: u32,
    /// Failed starts in a row.
    pub(crate) failed_starts: u32,
    /// Its own restarts, where each child is a domain of its own.
    pub(crate) window: IntensityWindow,
    /// Callers that wait for its start.
    pub(crate) start_callers: Vec<(RequestId, StartRequester)>,
    /// Callers that wait for its end.
    pub(crate) stop_callers: Vec<RequestId>,
    /// What is to take its id once it is gone.
    pub(crate) successor: Option<Successor>,
}

/// Whose start it is that has not succeeded yet, which says what follows when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartCause {
    /// One of the first children: the supervisor does not start without it.
    Boot,
    /// A caller's: it is told, and the child is forgotten.
    StartRequest,
    /// A caller's who wanted it again: it is told, and the child is what it was before.
    RestartRequest(FinalState),
}

/// What a child is that is neither running nor about to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinalState {
    Finished(ExitClass),
    Quarantined,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartRequester {
    /// The child is the one that it brought.
    First,
    /// It wanted another under the same id.
    Later,
}

#[derive(Debug, Clone)]
pub(crate) struct Successor {
    pub(crate) policy: ChildPolicy,
    /// The first of them brought the spec.
    pub(crate) start_callers: Vec<(RequestId, StartRequester)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    Starting,
    Up,
    /// Something of it is still there.
    Leaving {
        stop_requested: StopRequested,
        after_exit: AfterExit,
    },
    Pending {
        due: Uptime,
    },
    Final(FinalState),
}

/// Whether a child that leaves was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopRequested {
    /// It goes by itself.
    No,
    /// It was stopped, and may be killed when a timer comes.
    Yes,
}

/// What follows when a child is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterExit {
    /// How it ends will say.
    Undecided,
    Remove,
    Finish(FinalState),
    Restart {
        due: Uptime,
    },
}

impl Child {
    pub(crate) fn new(id: ChildId, policy: ChildPolicy, start_cause: StartCause) -> Self {
        Self {
            id,
            policy,
            phase: Phase::Waiting,
            spawned: 0,
            start_cause: Some(start_cause),
            up_since: None,
            marked: None,
            failures: 0,
            failed_starts: 0,
            window: IntensityWindow::default(),
            start_callers: Vec::new(),
            stop_callers: Vec::new(),
            successor: None,
        }
    }

    /// An actor of it runs and nothing is decided about its end.
    pub(crate) const fn is_living(&self) -> bool {
        matches!(
            self.phase,
            Phase::Starting
                | Phase::Up
                | Phase::Leaving { stop_requested: StopRequested::No, after_exit: AfterExit::Undecided }
        )
    }

    pub(crate) const fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving { .. })
    }

    /// Those after it need not wait for it: it runs, or it will not.
    pub(crate) const fn is_settled(&self) -> bool {
        match self.phase {
            Phase::Up => self.marked.is_none(),
            Phase::Final(_)
            | Phase::Leaving {
                stop_requested: StopRequested::No,
                after_exit: AfterExit::Remove | AfterExit::Finish(_),
            } => true,
            Phase::Waiting | Phase::Starting | Phase::Leaving { .. } | Phase::Pending { .. } => false,
        }
    }

    /// It is not coming back, or may not: another may take its id when it is gone.
    pub(crate) const fn is_departing(&self) -> bool {
        matches!(
            self.phase,
            Phase::Leaving {
                after_exit: AfterExit::Undecided
                    | AfterExit::Remove
                    | AfterExit::Finish(FinalState::Finished(_)),
                ..
            }
        )
    }

    /// Begins anew, as if it had never failed.
    pub(crate) fn clear_failures(&mut self) {
        self.failures = 0;
        self.failed_starts = 0;
        self.window.clear();
    }

    pub(crate) const fn status(&self) -> ChildStatus {
        match self.phase {
            Phase::Waiting => ChildStatus::Waiting,
            Phase::Starting => ChildStatus::Starting,
            Phase::Up => ChildStatus::Running,
            Phase::Leaving { .. } => ChildStatus::Stopping,
            Phase::Pending { due } => ChildStatus::Pending { due },
            Phase::Final(FinalState::Finished(_)) => ChildStatus::Finished,
            Phase::Final(FinalState::Quarantined) => ChildStatus::Quarantined,
        }
    }
}

impl Successor {
    pub(crate) fn first(&self) -> Option<RequestId> {
        self.start_callers.first().map(|(request, _)| *request)
    }
}

/// The key after `key`, so that a range can begin behind it.
pub(crate) const fn next_key(key: ChildKey) -> ChildKey {
    ChildKey(key.0 + 1)
}
