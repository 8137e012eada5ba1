//! `conjure run`: answers one prompt with skills and tools, in a session that can be resumed.
//!
//! The command ends only after everything that it started. It interrupts the turn, cleans up the sandbox and closes the journal, each with
//! a timeout. A second signal skips these waits. The guest then ends by itself, because its stream ends with this process.

use std::sync::Arc;

use conjure::runtime::Deadline;
use conjure::{Clock as _, Config, ProcessEnv, SystemClock};

use crate::cli::args::RunArgs;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::run::command_session::FollowOptions;
use crate::cli::run::printing::progress::DisplayMode;
use crate::cli::run::printing::run_result::timeout_error;
use crate::cli::run::printing::turn_summary::TurnSummary;
use crate::cli::run::setup::open_session::merge_args;
use crate::cli::run::setup::run_plan::{RunPlan, prepare};
use crate::cli::signals::Signals;
use crate::cli::terminal::Terminal;

/// Runs the command.
pub(crate) async fn run(
    args: RunArgs,
    config: Config,
    environment: ProcessEnv,
    terminal: Arc<Terminal>,
) -> Result<ExitStatus, CliError> {
    let (args, terminal) = (&args, &terminal);
    let mut signals = Signals::catch()?;
    let deadline = args.timeout.map_or(Deadline::NEVER, |timeout| SystemClock.deadline(timeout));
    let config = merge_args(&args.new_session, &config, &environment, terminal).await?;
    let mut opened = None;
    let prepared = tokio::select! {
        prepared = prepare(args, &config, environment, terminal, &mut opened) => prepared.map_err(Err),
        exit = signals.next() => Err(Ok(exit)),
        () = SystemClock.sleep_until(deadline) => Err(Err(timeout_error())),
    };
    match (prepared, opened) {
        (Ok(RunPlan { command, recording }), Some(opened)) => {
            let mode = if args.json { DisplayMode::Events } else { DisplayMode::Lines };
            opened
                .run_turns(
                    vec![command],
                    recording,
                    FollowOptions { mode, deadline, summary: TurnSummary::default(), model_change: None },
                    &mut signals,
                    terminal,
                )
                .await
        }
        (Ok(_), None) => Err(CliError::internal("the session is not there")),
        (Err(ended), opened) => {
            if let Some(opened) = opened {
                tokio::select! {
                    () = opened.discard() => {}
                    _ = signals.next() => {}
                }
            }
            ended
        }
    }
}
