//! `conjure run`: answers one prompt with the help of skills and tools.
//!
//! Everything that is started ends before the command does: the conversation is cancelled, then the sandbox is
//! cleaned up, each within a bound. A second signal does not wait for that; the guest then ends by itself, since its
//! stream ends with this process.

mod ending;
mod input;
mod prepare;
mod produced;
mod progress;
mod used;
mod words;

use std::sync::Arc;
use std::time::Duration;

use conjure::{
    Clock as _, Config, Deadline, Environment, Error, LoopOptions, LoopOutcome, SessionId, SystemClock,
    loop_options, run_loop,
};
use tokio_util::sync::CancellationToken;

use crate::cli::args::RunArgs;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::run::ending::Ending;
use crate::cli::run::prepare::{Prepared, configured, prepare};
use crate::cli::run::progress::{Show, Watcher, watch};
use crate::cli::signals::Signals;
use crate::cli::terminal::Terminal;

/// So long a reader may take after a signal; without one it may take its time.
const READER_PATIENCE: Duration = Duration::from_secs(5);

/// A sandbox that has not ended by then is left to end by itself.
const CLEANUP_PATIENCE: Duration = Duration::from_secs(10);

/// What the model is told first.
const BASE_PROMPT: &str = "You are a helpful assistant with tools. Use them to find out instead of guessing, and \
                           answer briefly.";

/// What the conversation came to, and what came between.
struct Conversed {
    /// `None`: a second signal ended the wait for it.
    outcome: Option<Result<LoopOutcome, Error>>,
    signal: Option<Exit>,
}

/// Answers the prompt, and says so when it cannot.
pub(crate) async fn run(
    args: Arc<RunArgs>,
    config: Config,
    environment: Environment,
    terminal: Arc<Terminal>,
) -> Exit {
    let done = answer(&args, &config, environment, &terminal).await;
    done.unwrap_or_else(|failure| {
        terminal.failure(&failure);
        failure.exit
    })
}

async fn answer(
    args: &Arc<RunArgs>,
    config: &Config,
    environment: Environment,
    terminal: &Arc<Terminal>,
) -> Result<Exit, Failure> {
    let mut signals = Signals::catch()?;
    let deadline = args.timeout.map_or(Deadline::NEVER, |timeout| SystemClock.deadline(timeout));
    let config = configured(args, config)?;
    let prepared = tokio::select! {
        prepared = prepare(args, &config, environment, terminal) => prepared?,
        exit = signals.next() => return Ok(exit),
        () = SystemClock.sleep_until(deadline) => return Err(ending::out_of_time()),
    };
    let show = if args.json { Show::Events(session_id()?) } else { Show::Progress };
    let unread = CancellationToken::new();
    let (watcher, printer) = watch(Arc::clone(terminal), show, unread.clone());
    let watcher = Arc::new(watcher);
    let options =
        LoopOptions { deadline, observer: Arc::<Watcher>::clone(&watcher), ..loop_options(&config) };

    let Conversed { outcome, signal } = converse(&prepared, options, &unread, &mut signals, watcher).await;
    // The outcome holds the observer, and the printer ends only after it.
    let usage = outcome.as_ref().and_then(|outcome| Some(outcome.as_ref().ok()?.usage));
    let ending = outcome.map(|outcome| Ending::of(outcome, signal));
    let Prepared { workbench, before, recorder, tariff, .. } = prepared;
    if ending.is_some() {
        tokio::select! {
            () = produced::fetch(&**workbench.executor(), terminal) => {}
            _ = signals.next() => terminal.warning("what the run produced in the sandbox was not brought here"),
        }
    }
    // After a second signal nothing is waited for.
    let cleaned = match &ending {
        None => false,
        Some(_) => tokio::select! {
            cleaned = tokio::time::timeout(CLEANUP_PATIENCE, workbench.cleanup()) => cleaned.is_ok(),
            _ = signals.next() => false,
        },
    };
    let unwritten = match (&ending, signal) {
        (None, _) => None,
        (Some(_), None) => printer.finish(signals.next()).await,
        (Some(_), Some(signal)) => printer
            .finish(SystemClock.sleep_until(SystemClock.deadline(READER_PATIENCE)))
            .await
            .map(|()| signal),
    };
    if !cleaned {
        terminal.warning("the sandbox was not waited for; it ends with this process");
    }
    if let (Some(tariff), Some(usage)) = (tariff, usage) {
        used::report(&usage, &tariff, terminal);
    }
    if let Some(mut context) = workbench.into_context() {
        let produced = context.workspace().produced_since(&before);
        produced::report(&produced, context.workspace_mut(), terminal);
    }
    let told = match (ending, unwritten) {
        (None, _) => Ok(signal.unwrap_or(Exit::Interrupted)),
        (Some(_), Some(exit)) => Ok(exit),
        (Some(ending), None) => tell(ending, args.json, terminal, signal, &mut signals).await,
    };
    let Some(Err(error)) = recorder.map(|recorder| recorder.finish()) else { return told };
    let lost = format!("the recording is not whole: {error}");
    if matches!(told, Ok(Exit::Done)) {
        return Err(Failure::internal(lost));
    }
    // What went wrong first names the exit.
    terminal.warning(&lost);
    told
}

/// Tells the ending, after `signal`. A reader may take its time, and another signal must not wait for it.
async fn tell(
    ending: Ending,
    as_events: bool,
    terminal: &Arc<Terminal>,
    signal: Option<Exit>,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let teller = Arc::clone(terminal);
    let told = tokio::task::spawn_blocking(move || ending.tell(as_events, &teller));
    tokio::select! {
        told = told => told.unwrap_or_else(|error| Err(Failure::internal(format!("the answer was lost: {error}")))),
        // The first one gives the code.
        exit = signals.next() => Ok(signal.unwrap_or(exit)),
    }
}

/// Runs the conversation until it ends. The first signal cancels it, a second one ends the wait; that nobody reads
/// the events any more cancels it too.
async fn converse(
    prepared: &Prepared,
    options: LoopOptions,
    unread: &CancellationToken,
    signals: &mut Signals,
    watcher: Arc<Watcher>,
) -> Conversed {
    let cancel = options.cancel.clone();
    let messages = vec![prepared.message.clone()];
    let looping = run_loop(messages, &prepared.workbench, BASE_PROMPT, &*prepared.model, options);
    tokio::pin!(looping);
    let mut signal = None;
    loop {
        tokio::select! {
            outcome = &mut looping => return Conversed { outcome: Some(outcome), signal },
            exit = signals.next() => {
                if signal.is_some() {
                    return Conversed { outcome: None, signal };
                }
                watcher.note("interrupted: ending what was started (a second signal does not wait for it)");
                signal = Some(exit);
                cancel.cancel();
            }
            () = unread.cancelled(), if !cancel.is_cancelled() => cancel.cancel(),
        }
    }
}

fn session_id() -> Result<SessionId, Failure> {
    SessionId::random()
        .map_err(|error| Failure::internal(format!("this machine gives no random numbers: {error}")))
}
