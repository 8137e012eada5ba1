//! What a supervisor is told: by its children, by its callers, by its timer and from above.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::error::{RequestError, StartError};
use super::exit::Exit;
use super::handle::Child;
use super::id::ChildId;
use super::machine::{ChildKey, Generation};
use super::spec::ChildSpec;

/// A message to a supervisor.
pub(crate) enum SupervisorMessage {
    /// Of one of its children.
    ChildReport { key: ChildKey, generation: Generation, report: ChildReport },
    /// Of a caller. The permit bounds how many of them wait.
    Request { request: Request, permit: OwnedSemaphorePermit },
    /// Its timer.
    Tick,
    /// Stop all, in order, and end.
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
