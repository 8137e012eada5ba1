//! SIGINT and SIGTERM: the first signal ends the work in order, and the second one ends the program at once.
//!
//! The work handles signals itself. [`with_forced_exit`] handles them too, because the work may be blocked by a write to a standard error
//! that is not read.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::terminal::Terminal;

/// Longer than an orderly shutdown takes with all its timeouts. After that, the program ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// How long the work may still print after a second signal.
const FINAL_OUTPUT_TIME: Duration = Duration::from_secs(1);

/// Which signals must end the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndingSignals {
    /// SIGINT and SIGTERM.
    All,
    /// SIGTERM only. After SIGINT the work may continue.
    Termination,
}

/// Runs `work` as a task, which also prints the error if the work fails. If a signal must end the work, and the work does not end in time,
/// returns without waiting for it.
pub(crate) async fn with_forced_exit(
    ending: EndingSignals,
    terminal: Arc<Terminal>,
    work: impl Future<Output = Result<ExitStatus, CliError>> + Send + 'static,
) -> Result<ExitStatus, CliError> {
    let mut signals = Signals::catch()?;
    let mut task = JoinSet::new();
    task.spawn(async move { terminal.exit_status(work.await) });
    let stuck = async {
        let mut exit = signals.next().await;
        while ending == EndingSignals::Termination && exit != ExitStatus::Terminated {
            exit = signals.next().await;
        }
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, signals.next()).await;
        tokio::time::sleep(FINAL_OUTPUT_TIME).await;
        exit
    };
    tokio::select! {
        done = task.join_next() => match done {
            Some(Ok(exit)) => Ok(exit),
            Some(Err(error)) => Err(CliError::internal(format!("the run was lost: {error}"))),
            None => Ok(ExitStatus::Failed),
        },
        exit = stuck => Ok(exit),
    }
}

/// The signals that end the program.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Installs the handlers. Must be called within the runtime.
    pub(crate) fn catch() -> Result<Self, CliError> {
        let caught = |kind| {
            signal(kind).map_err(|error| CliError::internal(format!("signals cannot be caught: {error}")))
        };
        Ok(Self { interrupt: caught(SignalKind::interrupt())?, terminate: caught(SignalKind::terminate())? })
    }

    /// Waits for the next signal, and returns its exit status. Cancel safe.
    pub(crate) async fn next(&mut self) -> ExitStatus {
        tokio::select! {
            _ = self.interrupt.recv() => ExitStatus::Interrupted,
            _ = self.terminate.recv() => ExitStatus::Terminated,
        }
    }
}
