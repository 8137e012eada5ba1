//! The state machine's data of one child.

use super::intensity::IntensityWindow;
use super::types::{ChildKey, ChildPolicy, ChildStatus, RequestId, Uptime};
use crate::supervision::specs::exit::ExitClass;
use crate::supervision::specs::id::ChildId;

#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(crate) id: ChildId,
    pub(crate) policy: ChildPolicy,
    pub(crate) phase: Phase,
    /// How often it was spawned.
    pub(crate) spawned: u64,
    /// Why it is being started for the first time; `None` after its first successful start.
    pub(crate) start_cause: Option<StartCause>,
    /// When the start of this incarnation succeeded.
    pub(crate) up_since: Option<Uptime>,
    /// Set if it is about to be stopped, with what follows then.
    pub(crate) marked: Option<AfterExit>,
    /// Failures since it last ran for its healthy time.
    pub(crate) failures: u32,
    /// Failed starts in a row.
    pub(crate) failed_starts: u32,
    /// Its own restarts, if each child has its own restart limit.
    pub(crate) window: IntensityWindow,
    /// Callers that wait for its start.
    pub(crate) start_callers: Vec<(RequestId, StartRequester)>,
    /// Callers that wait for its end.
    pub(crate) stop_callers: Vec<RequestId>,
    /// What takes its id once it is gone.
    pub(crate) successor: Option<Successor>,
}

/// Why a child that has not started yet is being started. It decides what follows a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartCause {
    /// It is one of the first children; the supervisor does not start without it.
    Boot,
    /// A caller requested it. The caller gets the error, and the child is forgotten.
    StartRequest,
    /// A caller requested its restart. The caller gets the error, and the child stays what it was.
    RestartRequest(FinalState),
}

/// The state of a child that neither runs nor will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinalState {
    Finished(ExitClass),
    Quarantined,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartRequester {
    /// This request brought the child.
    First,
    /// This request wanted a child with the same id.
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
    /// Something of it still exists.
    Leaving {
        stop_requested: StopRequested,
        after_exit: AfterExit,
    },
    Pending {
        due: Uptime,
    },
    Final(FinalState),
}

/// Whether a child that is leaving was asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopRequested {
    /// It stops by itself.
    No,
    /// It was stopped, and is killed if a timer expires.
    Yes,
}

/// What follows when a child is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterExit {
    /// Its exit decides.
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

    /// Whether its actor runs and its end is not decided.
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

    /// Whether its later siblings need not wait for it: it runs, or it will not.
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

    /// Whether it will not or may not come back. Another child can take its id when it is gone.
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

    /// Forgets its failures.
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

/// The key after `key`, for ranges that start after it.
pub(crate) const fn next_key(key: ChildKey) -> ChildKey {
    ChildKey(key.0 + 1)
}
