//! What can be wrong with a spec, and what a caller of a supervisor can be told.

use std::time::Duration;

use super::exit::Exit;
use super::handle::Child;
use super::id::ChildId;
use super::tree::ActorTree;

/// A spec that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The text is not the id of a child.
    #[error("`{text}` is not a child's id: it must be 1 to 128 bytes without `/` and control characters")]
    BadId {
        /// What was given.
        text: String,
    },
    /// Two children of one supervisor have one id.
    #[error("there are two children `{id}`")]
    DuplicateId {
        /// The id.
        id: ChildId,
    },
    /// A significant child of a supervisor that no child can end.
    #[error("child `{id}` is significant, but its supervisor never shuts down because of a child")]
    NeedsAutoShutdown {
        /// The child.
        id: ChildId,
    },
}

/// StopCause a child was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is a child under this id, and here it is.
    #[error("child `{}` is started already", .0.id())]
    AlreadyStarted(Child),
    /// The child under this id failed too often, the last time so, and is not started until somebody asks for that by
    /// [`super::Supervisor::restart_child`], or terminates it.
    #[error("child `{id}` is quarantined ({})", last_exit_text(.exit.as_ref()))]
    Quarantined {
        /// The child.
        id: ChildId,
        /// How it ended the last time.
        exit: Option<Exit>,
    },
    /// The supervisor has as many children as it may have; those that wait for their restart count.
    #[error("the supervisor has {capacity} children, as many as it may")]
    Full {
        /// How many.
        capacity: usize,
    },
    /// The start failed; nothing of the child is left.
    #[error("the child {0}")]
    Failed(Exit),
    /// The child was terminated before its start was over.
    #[error("the child was terminated before its start was over")]
    Terminated,
    /// There is no child of this id to be started again.
    #[error("there is no child `{0}`")]
    NotFound(ChildId),
    /// The spec does not fit the supervisor.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The supervisor could not be asked.
    #[error(transparent)]
    Request(#[from] RequestError),
}

fn last_exit_text(exit: Option<&Exit>) -> String {
    exit.map_or_else(|| "it never ran".to_owned(), |exit| format!("the last time: {exit}"))
}

impl StartError {
    /// Whether the same request may succeed later without anybody doing anything.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Failed(_) | Self::Terminated => true,
            Self::Request(error) => error.is_retryable(),
            Self::AlreadyStarted(_) | Self::Quarantined { .. } | Self::NotFound(_) | Self::Spec(_) => false,
        }
    }
}

/// StopCause a request to a supervisor has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// It does not run now.
    #[error("supervisor `{0}` is not running")]
    NotRunning(ChildId),
    /// It is about to end, or ended before it answered.
    #[error("supervisor `{0}` is shutting down")]
    ShuttingDown(ChildId),
    /// Too many requests wait for it.
    #[error("too many requests wait for supervisor `{0}`")]
    Overloaded(ChildId),
    /// It did not answer in time. What was asked for may still happen.
    #[error("supervisor `{0}` did not answer before the deadline")]
    DeadlinePassed(ChildId),
    /// It has no such child.
    #[error("there is no child `{0}`")]
    NotFound(ChildId),
}

impl RequestError {
    /// Whether the same request may succeed later without anybody doing anything.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        !matches!(self, Self::NotFound(_))
    }
}

/// A tree that did not stop in order before its deadline.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ShutdownError {
    /// What was left at the deadline was killed, and is gone.
    #[error("the tree did not stop before the deadline, and was killed:\n{still}")]
    Killed {
        /// What was left at the deadline.
        still: Box<ActorTree>,
    },
    /// What was left was killed and is still there: it blocks a thread.
    #[error("the tree was killed, and this is still there after {grace:?}:\n{still}")]
    Stuck {
        /// What is left.
        still: Box<ActorTree>,
        /// For how long it was waited for after it was killed.
        grace: Duration,
    },
}
