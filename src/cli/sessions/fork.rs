//! `conjure sessions fork`: creates a session with another session's events up to a message, and a copy of its workspace.
//!
//! It calls no model and creates no sandbox, so it needs neither a key nor a secret.

use conjure::config::ExecutorKind;
use conjure::hosted::{HostedFiles, HostedSupport};
use conjure::model::{ModelErrorKind, ModelStream};
use conjure::session::{ForkError, ForkPoint, SessionSecrets};
use conjure::{Config, Model, ModelError, ProcessEnv, Request, RuntimeError, RuntimeOptions, Settings};
use futures_util::{StreamExt as _, stream};

use crate::cli::args::ForkArgs;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::{CommandRuntime, with_data_dir};
use crate::cli::sessions::find::find;
use crate::cli::terminal::Terminal;

/// A placeholder for the session's model, which is never called.
struct NotCalled;

impl Model for NotCalled {
    fn stream(&self, _: Request) -> ModelStream {
        let error = ModelError::new(ModelErrorKind::Script, "no model is called while a session is forked");
        stream::iter([Err(error)]).boxed()
    }

    fn hosted_support(&self) -> HostedSupport {
        HostedSupport::Skills
    }

    fn hosted_files(&self) -> HostedFiles {
        HostedFiles::None
    }
}

/// Forks the session, and prints the id of the fork.
pub(super) async fn fork(
    args: ForkArgs,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    // It creates no sandboxes, so it needs no container engine.
    let settings = Settings { executor: Some(ExecutorKind::Local), ..Settings::default() };
    let config = with_data_dir(&args.data_args, config)?.with(settings)?;
    let reader =
        CommandRuntime::for_sessions(&args.data_args, RuntimeOptions::from, &config, environment).await?;
    let found = async {
        let id = find(&reader, &args.id).await?;
        Ok::<_, CliError>((id, reader.runtime.profile(&reader.tenant, id).await?))
    };
    let found = found.await;
    let _ = reader.shut_down().await;
    let (id, profile) = found?;
    let name = profile.model.clone().unwrap_or_else(|| "none".to_owned());
    let options = |config: Config| RuntimeOptions::from(config).model(name.clone(), NotCalled);
    let host = CommandRuntime::for_sessions(&args.data_args, options, &config, environment).await?;
    let at = match args.at {
        Some(at) => ForkPoint::Before(at),
        None if args.undo => ForkPoint::BeforeLastMessage,
        None => ForkPoint::End,
    };
    // Secrets are not recorded. The user provides them when the fork is resumed.
    let secrets = SessionSecrets::new().allow_missing();
    let forked = host.runtime.fork_with(&host.tenant, id, at, secrets).await;
    let forked = forked.map(|session| session.id());
    let resume = forked.as_ref().ok().map(|forked| host.resume_command(*forked));
    let _ = host.shut_down().await;
    let forked = forked.map_err(|error| match error {
        RuntimeError::Fork { reason: ForkError::TurnRunning, .. } => CliError::usage(error.to_string())
            .with_hint(format!("`conjure sessions resume {id}` continues it to its end")),
        RuntimeError::Fork { reason: ForkError::OutOfRange { .. } | ForkError::NoMessage, .. } => {
            CliError::usage(error.to_string())
                .with_hint(format!("`conjure sessions export {id}` has the events with their numbers, `seq`"))
        }
        RuntimeError::Fork { .. } => CliError::usage(error.to_string()),
        error => error.into(),
    })?;
    terminal.output(&forked.to_string());
    let files = if profile.workspace.is_some() {
        "it works in the same directory, which is not copied"
    } else {
        "its files are copies of those that are there now, whatever they were then"
    };
    terminal.note(&format!("the session {forked} is a fork of {id}; {files}"));
    if let Some(resume) = resume {
        terminal.note(&format!("continue it: {resume} \"And by quarter?\""));
    }
    Ok(ExitStatus::Success)
}
