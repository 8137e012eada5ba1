//! The errors of requests to a supervisor.

use std::time::Duration;

use super::child::Child;
use crate::supervision::specs::exit::Exit;
use crate::supervision::specs::id::{ChildId, SpecError};
use crate::supervision::tree::ActorTree;

/// Why a child was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A child with this id exists already.
    #[error("child `{}` already exists", .0.id())]
    AlreadyStarted(Child),
    /// The child with this id failed too often and is in quarantine. [`crate::supervision::Supervisor::restart_child`]
    /// starts it again. [`crate::supervision::Supervisor::terminate_child`] removes it.
    #[error("child `{id}` is quarantined ({})", last_exit_text(.exit.as_ref()))]
    Quarantined {
        /// The child.
        id: ChildId,
        /// Its last exit.
        exit: Option<Exit>,
    },
    /// The supervisor has as many children as its capacity allows. Children that wait for their restart count.
    #[error("the supervisor has {capacity} children, as many as it may")]
    Full {
        /// The maximum number of children.
        capacity: usize,
    },
    /// The start failed. Nothing of the child is left.
    #[error("the child {0}")]
    Failed(Exit),
    /// The child was terminated during its start.
    #[error("the child was terminated before its start ended")]
    Terminated,
    /// There is no child of this id to restart.
    #[error("there is no child `{0}`")]
    NotFound(ChildId),
    /// The spec does not fit the supervisor.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The request did not reach the supervisor.
    #[error(transparent)]
    Request(#[from] RequestError),
}

fn last_exit_text(exit: Option<&Exit>) -> String {
    exit.map_or_else(|| "it never ran".to_owned(), |exit| format!("last exit: {exit}"))
}

impl StartError {
    /// Whether the same request may succeed later without any change.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Failed(_) | Self::Terminated => true,
            Self::Request(error) => error.is_retryable(),
            Self::AlreadyStarted(_) | Self::Quarantined { .. } | Self::NotFound(_) | Self::Spec(_) => false,
        }
    }
}

/// Why a request to a supervisor has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The supervisor does not run now.
    #[error("supervisor `{0}` is not running")]
    NotRunning(ChildId),
    /// The supervisor is stopping, or stopped before it answered.
    #[error("supervisor `{0}` is shutting down")]
    ShuttingDown(ChildId),
    /// Too many requests wait for the supervisor.
    #[error("too many requests wait for supervisor `{0}`")]
    Overloaded(ChildId),
    /// The supervisor did not answer in time. It may still carry out the request.
    #[error("supervisor `{0}` did not answer before the deadline")]
    DeadlinePassed(ChildId),
    /// The supervisor has no such child.
    #[error("there is no child `{0}`")]
    NotFound(ChildId),
}

impl RequestError {
    /// Whether the same request may succeed later without any change.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        !matches!(self, Self::NotFound(_))
    }
}

/// The tree did not stop in order before its deadline.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ShutdownError {
    /// The remaining actors were killed, and have ended.
    #[error("the tree did not stop before the deadline, and was killed:\n{still}")]
    Killed {
        /// The actors that ran at the deadline.
        still: Box<ActorTree>,
    },
    /// The remaining actors were killed, but still exist because they block a thread.
    #[error("the tree was killed, but these actors still exist after {grace:?}:\n{still}")]
    Stuck {
        /// The actors that still exist.
        still: Box<ActorTree>,
        /// How long the shutdown waited after the kill.
        grace: Duration,
    },
}
