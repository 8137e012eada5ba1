//! `conjure sessions …`: what was kept of the runs so far, and going on with one.
//!
//! Listing, showing and exporting read what is recorded and start nothing.

mod export;
mod find;
mod list;
mod resume;
mod secrets;
mod show;
mod turns;
mod wanted;

use std::sync::Arc;

use conjure::{Config, Environment, ExecutorKind, ListCursor, RuntimeOptions, Settings};

use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::host::{Host, configured};
use crate::cli::session_args::{Place, SessionsCommand};
use crate::cli::sessions::find::find;
use crate::cli::sessions::wanted::Wanted;
use crate::cli::terminal::{Terminal, printable};

/// Does what the subcommand says, and says so when it cannot.
pub(crate) async fn sessions(
    command: SessionsCommand,
    config: Config,
    environment: Environment,
    terminal: Arc<Terminal>,
) -> Exit {
    let done = match command {
        SessionsCommand::Resume(args) => {
            resume::resume(Wanted::from(*args), &config, &environment, &terminal).await
        }
        SessionsCommand::Decide(args) => {
            resume::resume(Wanted::from(*args), &config, &environment, &terminal).await
        }
        command => look(command, &config, &environment, &terminal).await,
    };
    done.unwrap_or_else(|failure| {
        terminal.failure(&failure);
        failure.exit
    })
}

/// Looks at what is there.
async fn look(
    command: SessionsCommand,
    config: &Config,
    environment: &Environment,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let place = match &command {
        SessionsCommand::List { place, .. }
        | SessionsCommand::Show { place, .. }
        | SessionsCommand::Export { place, .. }
        | SessionsCommand::Delete { place, .. } => place.clone(),
        SessionsCommand::Resume(args) => args.going.place.clone(),
        SessionsCommand::Decide(args) => args.going.place.clone(),
    };
    // What a session has at its model's service goes with it.
    let host = match &command {
        SessionsCommand::Delete { .. } => {
            reader(&place, config, environment, |options| with_key(options, environment)).await?
        }
        _ => reader(&place, config, environment, |options| options).await?,
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
        SessionsCommand::Resume(_) | SessionsCommand::Decide(_) => Ok(Exit::Done),
    };
    // Nothing was started.
    let _ = host.end().await;
    done
}

/// A runtime in which nothing is started.
async fn reader(
    place: &Place,
    config: &Config,
    environment: &Environment,
    given: impl Fn(RuntimeOptions) -> RuntimeOptions,
) -> Result<Host, Failure> {
    // It has no sandboxes, so it needs no container engine.
    let settings = Settings { executor: Some(ExecutorKind::Local), ..Settings::default() };
    let config = configured(place, config)?.with(settings)?;
    Host::for_sessions(place, |config| given(RuntimeOptions::from(config)), &config, environment).await
}

/// With the service's models, where there is a key.
#[cfg(feature = "anthropic")]
fn with_key(options: RuntimeOptions, environment: &Environment) -> RuntimeOptions {
    match environment.api_key() {
        Some(key) => options.anthropic(key),
        None => options,
    }
}

/// There are none.
#[cfg(not(feature = "anthropic"))]
fn with_key(options: RuntimeOptions, _: &Environment) -> RuntimeOptions {
    options
}

async fn delete(host: &Host, id: &str, terminal: &Terminal) -> Result<Exit, Failure> {
    let id = find(host, id).await?;
    let deletion = host.runtime.delete(&host.tenant, id).await?;
    terminal.note(&format!("the session {id} is forgotten, and so is its own workspace"));
    for left in &deletion.left {
        let again =
            if left.files.is_empty() { "" } else { "; a command that works with this data tries again" };
        terminal.warning(&printable(&format!("{left}{again}")));
    }
    Ok(Exit::Done)
}
