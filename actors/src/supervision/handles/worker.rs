//! The trait of supervised workers.

use std::future::Future;

use super::context::Context;
use crate::supervision::specs::exit::Failure;

/// A worker that handles one message after another.
///
/// The value is the worker's state. The start function of its spec ([`crate::supervision::WorkerSpec::new`]) creates
/// it. It is dropped on the worker's own task, before the supervisor and the monitors are notified that the worker is
/// gone.
///
/// Only a kill cancels a handler, at an await. While a handler awaits, the worker handles nothing else. So long work
/// belongs in a tracked task ([`Context::spawn`]).
pub trait Worker: Sized + Send + 'static {
    /// The type of its messages.
    type Message: Send + 'static;

    /// Handles one message. After an error or a panic the worker ends, and its supervisor decides what follows.
    fn handle(
        &mut self,
        message: Self::Message,
        context: &Context<Self::Message>,
    ) -> impl Future<Output = Result<Flow, Failure>> + Send;

    /// Runs before the worker is dropped, if the worker was asked to stop, stops by itself, or was idle for its idle
    /// time. It does not run after a failure or a kill. An error makes the exit a failure.
    fn stop(&mut self, context: &Context<Self::Message>) -> impl Future<Output = Result<(), Failure>> + Send {
        let _ = context;
        std::future::ready(Ok(()))
    }
}

/// Whether a worker continues after a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// It continues.
    Continue,
    /// It ends with [`crate::supervision::Exit::Normal`]. Waiting messages are lost.
    Stop,
}
