//! `conjure run`: answers one prompt with the help of skills and tools, in a session that can be resumed.
//!
//! Everything that is started ends before the command does: the turn is interrupted, then the sandbox is cleaned up and the
//! journal closed, each within a bound. A second signal does not wait for that; the guest then ends by itself, since its
//! stream ends with this process.

mod chronicle;
mod ending;
mod input;
mod kept;
mod made;
mod out;
mod prepare;
mod produced;
mod progress;
mod session;
mod talk;
mod used;
mod words;

use std::sync::Arc;

use conjure::{Clock as _, Config, Deadline, Environment, SystemClock};

use crate::cli::args::RunArgs;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::run::prepare::{Prepared, configured, prepare};
use crate::cli::signals::Signals;
use crate::cli::terminal::Terminal;

pub(crate) use chronicle::Chronicle;
pub(crate) use ending::{nobody_decides, out_of_time};
pub(crate) use input::{message, prompt, standard_input};
pub(crate) use kept::settings;
pub(crate) use made::{of_service, put_in_order};
pub(crate) use out::{Out, folder as out_folder};
pub(crate) use prepare::{add_files, blocking, no_workspace, recorded, redactor, tool_folders, variables};
pub(crate) use produced::{hosted as hosted_line, size};
pub(crate) use progress::{Show, names};
pub(crate) use session::{Hosted, Manner, Opened, Voice, Whose, announce, no_sandbox};
pub(crate) use talk::Say;
pub(crate) use words::{SCRIPT, Source, Words, noted, words};

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
    let config = configured(args, config, &environment, terminal).await?;
    let mut opened = None;
    let prepared = tokio::select! {
        prepared = prepare(args, &config, environment, terminal, &mut opened) => prepared.map_err(Err),
        exit = signals.next() => Err(Ok(exit)),
        () = SystemClock.sleep_until(deadline) => Err(Err(out_of_time())),
    };
    match (prepared, opened) {
        (Ok(Prepared { say, voice }), Some(opened)) => {
            let show = if args.json { Show::Events } else { Show::Progress };
            opened
                .talk(
                    vec![say],
                    voice,
                    Manner { show, deadline, chronicle: Chronicle::default() },
                    &mut signals,
                    terminal,
                )
                .await
        }
        (Ok(_), None) => Err(Failure::internal("the session is not there")),
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
