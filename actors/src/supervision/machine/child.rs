//! What the machine knows of one child.

use super::types::{Key, Moment, Policy, State, Ticket};
use super::window::Window;
use crate::supervision::exit::ExitClass;
use crate::supervision::id::ChildId;

#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(crate) id: ChildId,
    pub(crate) policy: Policy,
    pub(crate) phase: Phase,
    /// How often it was spawned.
    pub(crate) spawned: u64,
    /// What its next good start is to those who asked for it; `None` once it had one.
    pub(crate) debut: Option<Debut>,
    /// When this incarnation's start was over.
    pub(crate) up_since: Option<Moment>,
    /// Its turn to be stopped will come, and then this is its fate.
    pub(crate) marked: Option<Fate>,
    /// Failures since it last ran for its healthy time.
    pub(crate) failures: u32,
    /// Failed starts in a row.
    pub(crate) failed_starts: u32,
    /// Its own restarts, where each child is a domain of its own.
    pub(crate) window: Window,
    /// Callers that wait for its start.
    pub(crate) starters: Vec<(Ticket, Asker)>,
    /// Callers that wait for its end.
    pub(crate) enders: Vec<Ticket>,
    /// What is to take its id once it is gone.
    pub(crate) successor: Option<Successor>,
}

/// Whose start it is that has not succeeded yet, which says what follows when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Debut {
    /// One of the first children: the supervisor does not start without it.
    Boot,
    /// A caller's: it is told, and the child is forgotten.
    Caller,
    /// A caller's who wanted it again: it is told, and the child is what it was before.
    Again(Rest),
}

/// What a child is that is neither running nor about to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    Finished(ExitClass),
    Quarantined,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// The child is the one that it brought.
    First,
    /// It wanted another under the same id.
    Later,
}

#[derive(Debug, Clone)]
pub(crate) struct Successor {
    pub(crate) policy: Policy,
    /// The first of them brought the spec.
    pub(crate) starters: Vec<(Ticket, Asker)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    Starting,
    Up,
    /// Something of it is still there.
    Leaving {
        asked: Asked,
        fate: Fate,
    },
    Pending {
        due: Moment,
    },
    Resting(Rest),
}

/// Whether a child that leaves was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It goes by itself.
    No,
    /// It was stopped, and may be killed when a timer comes.
    Yes,
}

/// What follows when a child is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// How it ends will say.
    Undecided,
    Forget,
    Rest(Rest),
    Restart {
        due: Moment,
    },
}

impl Child {
    pub(crate) fn new(id: ChildId, policy: Policy, debut: Debut) -> Self {
        Self {
            id,
            policy,
            phase: Phase::Waiting,
            spawned: 0,
            debut: Some(debut),
            up_since: None,
            marked: None,
            failures: 0,
            failed_starts: 0,
            window: Window::default(),
            starters: Vec::new(),
            enders: Vec::new(),
            successor: None,
        }
    }

    /// An actor of it runs and nothing is decided about its end.
    pub(crate) const fn is_living(&self) -> bool {
        matches!(
            self.phase,
            Phase::Starting | Phase::Up | Phase::Leaving { asked: Asked::No, fate: Fate::Undecided }
        )
    }

    pub(crate) const fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving { .. })
    }

    /// Those after it need not wait for it: it runs, or it will not.
    pub(crate) const fn is_settled(&self) -> bool {
        match self.phase {
            Phase::Up => self.marked.is_none(),
            Phase::Resting(_) | Phase::Leaving { asked: Asked::No, fate: Fate::Forget | Fate::Rest(_) } => {
                true
            }
            Phase::Waiting | Phase::Starting | Phase::Leaving { .. } | Phase::Pending { .. } => false,
        }
    }

    /// It is not coming back, or may not: another may take its id when it is gone.
    pub(crate) const fn is_departing(&self) -> bool {
        matches!(
            self.phase,
            Phase::Leaving { fate: Fate::Undecided | Fate::Forget | Fate::Rest(Rest::Finished(_)), .. }
        )
    }

    /// Begins anew, as if it had never failed.
    pub(crate) fn absolve(&mut self) {
        self.failures = 0;
        self.failed_starts = 0;
        self.window.clear();
    }

    pub(crate) const fn state(&self) -> State {
        match self.phase {
            Phase::Waiting => State::Waiting,
            Phase::Starting => State::Starting,
            Phase::Up => State::Running,
            Phase::Leaving { .. } => State::Stopping,
            Phase::Pending { due } => State::Pending { due },
            Phase::Resting(Rest::Finished(_)) => State::Finished,
            Phase::Resting(Rest::Quarantined) => State::Quarantined,
        }
    }
}

impl Successor {
    pub(crate) fn first(&self) -> Option<Ticket> {
        self.starters.first().map(|(ticket, _)| *ticket)
    }
}

/// The key after `key`, so that a range can begin behind it.
pub(crate) const fn behind(key: Key) -> Key {
    Key(key.0 + 1)
}
