//! SIGINT and SIGTERM: the first one ends the work in good order, the second ends the program at once.
//!
//! The work listens for them itself, and [`never_stuck`] listens beside it, because the work may be stuck: in a write
//! to a standard error that nobody reads.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::cli::exit::Exit;
use crate::cli::failure::Failure;

/// Longer than the work needs to end in good order, with all its own bounds.
const GOOD_ORDER: Duration = Duration::from_secs(20);

/// After a second signal the work has so long to say what it has to say.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs `work` on a thread of its own. A signal that it does not heed ends the wait for it.
pub(crate) async fn never_stuck(work: impl Future<Output = Exit> + Send + 'static) -> Result<Exit, Failure> {
    let mut signals = Signals::catch()?;
    let mut task = JoinSet::new();
    task.spawn(work);
    let stuck = async {
        let exit = signals.next().await;
        let _ = tokio::time::timeout(GOOD_ORDER, signals.next()).await;
        tokio::time::sleep(LAST_WORDS).await;
        exit
    };
    tokio::select! {
        done = task.join_next() => match done {
            Some(Ok(exit)) => Ok(exit),
            Some(Err(error)) => Err(Failure::internal(format!("the run was lost: {error}"))),
            None => Ok(Exit::Failed),
        },
        exit = stuck => Ok(exit),
    }
}

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
