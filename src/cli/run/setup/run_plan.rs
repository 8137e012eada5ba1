//! Prepares a run before the model is called.

use std::sync::Arc;

use conjure::{Config, ProcessEnv};

use crate::cli::args::RunArgs;
use crate::cli::cli_error::CliError;
use crate::cli::run::command_session::{CommandSession, ModelRecording};
use crate::cli::run::follow_turn::TurnCommand;
use crate::cli::run::setup::open_session::SessionFiles;
use crate::cli::run::setup::open_session::open_session;
use crate::cli::run::setup::prompt_input;
use crate::cli::terminal::Terminal;

/// The parts of a run in addition to its session.
pub(crate) struct RunPlan {
    pub(crate) command: TurnCommand,
    pub(crate) recording: ModelRecording,
}

/// Prepares everything. The session is stored in `slot` as soon as it exists.
pub(crate) async fn prepare(
    args: &RunArgs,
    config: &Config,
    environment: ProcessEnv,
    terminal: &Arc<Terminal>,
    slot: &mut Option<CommandSession>,
) -> Result<RunPlan, CliError> {
    let prompt = prompt_input::check_prompt(&args.prompt)?;
    let files =
        SessionFiles { copied: args.file.clone(), out: args.out.clone().map(|dir| (dir, args.out_limit)) };
    let new = open_session(&args.new_session, files, config, environment, terminal, slot).await?;
    let given = prompt_input::standard_input(terminal).await?;
    let opened = slot.as_ref().ok_or_else(|| CliError::internal("the session is not there"))?;
    let inside = new.create_sandbox(opened, terminal).await?;
    let message = prompt_input::message(prompt, &inside, given.as_deref());
    Ok(RunPlan { command: TurnCommand::Prompt(message, None), recording: new.recording })
}
