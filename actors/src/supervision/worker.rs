//! What a supervised actor does: the trait that is implemented for it.

use std::future::Future;

use super::context::Context;
use super::exit::Failure;

/// An actor that handles one message after another.
///
/// The value itself is the actor's state. It is made by the start of its spec ([`super::WorkerSpec::new`]) and dropped
/// on the actor's own task, before anybody hears that the actor is gone. A handler is cancelled at an await only by
/// a kill; nothing else is heard while it awaits, so long work belongs into a tracked task ([`Context::spawn`]).
pub trait Worker: Sized + Send + 'static {
    /// What it understands.
    type Message: Send + 'static;

    /// Handles one message. An error or a panic ends the worker, and its supervisor decides.
    fn handle(
        &mut self,
        message: Self::Message,
        context: &Context<Self::Message>,
    ) -> impl Future<Output = Result<Flow, Failure>> + Send;

    /// The last thing before it is dropped: when it is asked to stop, stops by itself, or was idle for long enough. Not
    /// after a failure, nor when it is killed. An error makes its end a failure.
    fn stop(&mut self, context: &Context<Self::Message>) -> impl Future<Output = Result<(), Failure>> + Send {
        let _ = context;
        std::future::ready(Ok(()))
    }
}

/// Whether a worker goes on after a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    Continue,
    /// It is done: it ends with [`super::Exit::Normal`], and messages that wait are lost.
    Stop,
}
