//! `conjure sessions …`: lists, shows, exports, resumes, forks and deletes recorded sessions.
//!
//! Listing, showing and exporting read the event log and start nothing.

use std::sync::Arc;

use conjure::config::ExecutorKind;
use conjure::journal::ListCursor;
use conjure::{Config, ProcessEnv, RuntimeOptions, Settings};

use crate::cli::args::{DataArgs, SessionsCommand};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::{CommandRuntime, with_data_dir};
use crate::cli::sessions::export;
use crate::cli::sessions::find::find;
use crate::cli::sessions::fork;
use crate::cli::sessions::list;
use crate::cli::sessions::resume;
use crate::cli::sessions::resume_request::ResumeRequest;
use crate::cli::sessions::show;
use crate::cli::terminal::{Terminal, printable};

/// Runs the subcommand.
pub(crate) async fn sessions(
    command: SessionsCommand,
    config: Config,
    environment: ProcessEnv,
    terminal: Arc<Terminal>,
) -> Result<ExitStatus, CliError> {
    match command {
        SessionsCommand::Resume(args) => {
            resume::resume(ResumeRequest::from(*args), &config, &environment, &terminal).await
        }
        SessionsCommand::Decide(args) => {
            resume::resume(ResumeRequest::from(*args), &config, &environment, &terminal).await
        }
        SessionsCommand::Fork(args) => fork::fork(args, &config, &environment, &terminal).await,
        command => read_sessions(command, &config, &environment, &terminal).await,
    }
}

/// Runs a subcommand that starts no session.
async fn read_sessions(
    command: SessionsCommand,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    let data_args = match &command {
        SessionsCommand::List { data_args, .. }
        | SessionsCommand::Show { data_args, .. }
        | SessionsCommand::Export { data_args, .. }
        | SessionsCommand::Delete { data_args, .. } => data_args.clone(),
        SessionsCommand::Resume(args) => args.continue_args.data_args.clone(),
        SessionsCommand::Decide(args) => args.continue_args.data_args.clone(),
        SessionsCommand::Fork(args) => args.data_args.clone(),
    };
    // Deleting a session deletes its files at the model's service, too.
    let host = match &command {
        SessionsCommand::Delete { .. } => {
            read_only_runtime(&data_args, config, environment, |options| with_key(options, environment))
                .await?
        }
        _ => read_only_runtime(&data_args, config, environment, |options| options).await?,
    };
    let done = match command {
        SessionsCommand::List { limit, after, format, .. } => {
            list::list(&host, after.map(ListCursor::from_number), limit, format, terminal).await
        }
        SessionsCommand::Show { id, format, env, .. } => {
            show::show(&host, &id, format, &env, environment, terminal).await
        }
        SessionsCommand::Export { id, format, env, .. } => {
            export::export(&host, &id, format, &env, environment, terminal).await
        }
        SessionsCommand::Delete { id, .. } => delete(&host, &id, terminal).await,
        SessionsCommand::Resume(_) | SessionsCommand::Decide(_) | SessionsCommand::Fork(_) => {
            Ok(ExitStatus::Success)
        }
    };
    // Nothing was started, so a failure does not matter.
    let _ = host.shut_down().await;
    done
}

/// A runtime for reading, which starts nothing.
pub(super) async fn read_only_runtime(
    data_args: &DataArgs,
    config: &Config,
    environment: &ProcessEnv,
    given: impl Fn(RuntimeOptions) -> RuntimeOptions,
) -> Result<CommandRuntime, CliError> {
    // It creates no sandboxes, so it needs no container engine.
    let settings = Settings { executor: Some(ExecutorKind::Local), ..Settings::default() };
    let config = with_data_dir(data_args, config)?.with(settings)?;
    CommandRuntime::for_sessions(
        data_args,
        |config| given(RuntimeOptions::from(config)),
        &config,
        environment,
    )
    .await
}

/// Adds the service's models, if the environment has a key.
#[cfg(feature = "anthropic")]
fn with_key(options: RuntimeOptions, environment: &ProcessEnv) -> RuntimeOptions {
    match environment.api_key() {
        Some(key) => options.anthropic(key),
        None => options,
    }
}

/// This build has no such models.
#[cfg(not(feature = "anthropic"))]
fn with_key(options: RuntimeOptions, _: &ProcessEnv) -> RuntimeOptions {
    options
}

async fn delete(host: &CommandRuntime, id: &str, terminal: &Terminal) -> Result<ExitStatus, CliError> {
    let id = find(host, id).await?;
    let deletion = host.runtime.delete(&host.tenant, id).await?;
    terminal.note(&format!("the session {id} is forgotten, and so is its own workspace"));
    for left in &deletion.files {
        let again =
            if left.files.is_empty() { "" } else { "; a command that works with this data tries again" };
        terminal.warning(&printable(&format!("{left}{again}")));
    }
    Ok(ExitStatus::Success)
}
