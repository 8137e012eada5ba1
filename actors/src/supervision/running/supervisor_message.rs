//! The messages to a supervisor: from its children, its callers, its timer and its parent.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::supervision::handles::child::Child;
use crate::supervision::handles::error::{RequestError, StartError};
use crate::supervision::machine::{ChildKey, Generation};
use crate::supervision::specs::exit::Exit;
use crate::supervision::specs::id::ChildId;
use crate::supervision::specs::spec::ChildSpec;

/// A message to a supervisor.
pub(crate) enum SupervisorMessage {
    /// A report of a child.
    ChildReport { key: ChildKey, generation: Generation, report: ChildReport },
    /// A request of a caller. The permit limits how many requests wait.
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
