//! The messages to a supervisor: from its children, its callers, its timer and its parent.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::child::Child;
use super::error::{RequestError, StartError};
use super::exit::Exit;
use super::id::ChildId;
use super::machine::{ChildKey, Generation};
use super::spec::ChildSpec;

/// A message to a supervisor.
pub(crate) enum SupervisorMessage {
    /// A report of a child.
    ChildReport { key: ChildKey, generation: Generation, report: ChildReport },
    /// A request of a caller. The permit limits how many callers wait.
    Request { request: Request, permit: OwnedSemaphorePermit },
    /// The timer expired.
    Tick,
    /// Stop all children in order, and end.
    Stop,
}

pub(crate) enum ChildReport {
    Started,
    Leaving,
    Gone(Exit),
}

pub(crate) type StartReply = oneshot::Sender<Result<Child, StartError>>;

pub(crate) enum Request {
    Start { spec: Arc<ChildSpec>, reply: StartReply },
    Restart { id: ChildId, reply: StartReply },
    Terminate { id: ChildId, reply: oneshot::Sender<Result<(), RequestError>> },
}
