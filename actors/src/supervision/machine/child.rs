//! The state machine's data of one child.

use super::restart_limit::RestartWindow;
use super::types::{ChildKey, ChildPolicy, ChildStatus, RequestId, Uptime};
use crate::supervision::specs::exit::ExitClass;
use crate::supervision::specs::id::ChildId;

#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(crate) id: ChildId,
    pub(crate) policy: ChildPolicy,
    pub(crate) phase: Phase,
    /// How often it was spawned. This is also the number of its last generation.
    pub(crate) spawned: u64,
    /// Why it is started, if boot or a request started it. `None` after that start succeeded, and for a final child.
    pub(crate) start_cause: Option<StartCause>,
    /// When the start of this incarnation succeeded; `None` before.
    pub(crate) up_since: Option<Uptime>,
    /// Set if the child runs but will be stopped: the step that follows its exit.
    pub(crate) planned_stop: Option<AfterExit>,
    /// Failures since it last ran for its healthy time.
    pub(crate) failures: u32,
    /// Failed starts in a row.
    pub(crate) failed_starts: u32,
    /// Its own restarts. Used if each child has its own restart limit.
    pub(crate) window: RestartWindow,
    /// Callers that wait for its start.
    pub(crate) start_callers: Vec<(RequestId, StartRequester)>,
    /// Callers that wait for its end.
    pub(crate) stop_callers: Vec<RequestId>,
    /// The new child that takes its id once it is gone.
    pub(crate) successor: Option<Successor>,
}

/// Why boot or a request starts a child. It decides what follows a failed start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartCause {
    /// It is an initial child. The supervisor does not start without it.
    Boot,
    /// A caller requested the child. The caller gets the error, and the child is removed.
    StartRequest,
    /// A caller requested its restart. The caller gets the error, and the child returns to this state.
    RestartRequest(FinalState),
}

/// The state of a child that does not run and is not restarted automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinalState {
    Finished(ExitClass),
    Quarantined,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartRequester {
    /// This request brought the child's spec, or restarts it.
    First,
    /// This request came later, for a child with the same id.
    Later,
}

#[derive(Debug, Clone)]
pub(crate) struct Successor {
    pub(crate) policy: ChildPolicy,
    /// The waiting callers. The first one brought the spec.
    pub(crate) start_callers: Vec<(RequestId, StartRequester)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    Starting,
    Up,
    /// It is stopping or has ended, and something of it still exists.
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
    /// It stops or ended by itself.
    No,
    /// The supervisor stopped it. It is killed if a timer expires.
    Yes,
}

/// The step that follows when a child is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterExit {
    /// The child stops by itself, and its exit will decide.
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
            planned_stop: None,
            failures: 0,
            failed_starts: 0,
            window: RestartWindow::default(),
            start_callers: Vec::new(),
            stop_callers: Vec::new(),
            successor: None,
        }
    }

    /// Whether its actor runs and the next step is not decided.
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

    /// Whether later siblings need not wait for this child: it runs, or it will not be started again.
    pub(crate) const fn is_settled(&self) -> bool {
        match self.phase {
            Phase::Up => self.planned_stop.is_none(),
            Phase::Final(_)
            | Phase::Leaving {
                stop_requested: StopRequested::No,
                after_exit: AfterExit::Remove | AfterExit::Finish(_),
            } => true,
            Phase::Waiting | Phase::Starting | Phase::Leaving { .. } | Phase::Pending { .. } => false,
        }
    }

    /// Whether the child is leaving and may not come back. A new child can take its id when it is gone. A child that is
    /// leaving for a restart or for quarantine keeps its id.
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

    /// Resets its failure counts.
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
