//! SIGINT and SIGTERM: the first one ends the work in good order, the second ends the program at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::exit::Exit;
use crate::cli::failure::Failure;

/// The signals that end the program, from now on caught.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Catches the signals. Must be called within the runtime.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let caught = |kind| {
            signal(kind).map_err(|error| Failure::internal(format!("signals cannot be caught: {error}")))
        };
        Ok(Self { interrupt: caught(SignalKind::interrupt())?, terminate: caught(SignalKind::terminate())? })
    }

    /// Waits for the next signal, and gives the exit code that it means. Cancel safe.
    pub(crate) async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Terminated,
        }
    }
}
