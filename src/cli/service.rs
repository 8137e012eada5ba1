//! The model's service: its client as configured, and its failures in words for the user.

use conjure::anthropic::hosted::{HostedError, HostedErrorKind, SyncError, SyncErrorKind};
use conjure::anthropic::{self, Client, ConfigError};
use conjure::{Config, Environment, Redactor};
use secrecy::ExposeSecret as _;

use crate::cli::exit::Exit;
use crate::cli::failure::{ANOTHER_FOLDER, Failure};
use crate::cli::terminal::{Terminal, printable};

/// What helps where the service does not know what a command names.
pub(crate) const LISTED: &str = "`conjure skills remote list` lists what there is";

/// A client by the key of this process, which nothing shows from here on.
pub(crate) fn client(
    config: &Config,
    environment: &Environment,
    terminal: &Terminal,
) -> Result<Client, Failure> {
    let key = environment.api_key().ok_or_else(|| {
        Failure::usage("the service needs a key, and `ANTHROPIC_API_KEY` is not set")
            .hint("`export ANTHROPIC_API_KEY=…`")
    })?;
    terminal.redact(Redactor::new([("ANTHROPIC_API_KEY", key.expose_secret())]));
    Client::new(&anthropic::config(config, key)).map_err(unusable)
}

/// A configuration of the client that cannot work.
pub(crate) fn unusable(error: ConfigError) -> Failure {
    let failure = Failure::usage(error.to_string());
    match error {
        ConfigError::Key => failure.hint("the key is taken from `ANTHROPIC_API_KEY`"),
        ConfigError::BaseUrl { .. } => failure
            .hint("it is taken from `ANTHROPIC_BASE_URL`, or from `base_url` in the configuration file"),
        _ => failure,
    }
}

/// What the service, or the way to it, refused. `missing` is what helps where it does not know what was named.
pub(crate) fn refused(error: &HostedError, missing: &str) -> Failure {
    use HostedErrorKind as Kind;
    let exit = match error.kind() {
        Kind::WrongKey | Kind::NotFound | Kind::InvalidId | Kind::InvalidSkill | Kind::OverLimit => {
            Exit::Usage
        }
        _ => Exit::Failed,
    };
    let failure = Failure::new(exit, printable(&error.to_string()));
    match hint(error, missing) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// What helps.
pub(crate) fn hint(error: &HostedError, missing: &str) -> Option<String> {
    use HostedErrorKind as Kind;
    let again = "the same command again looks first at what has arrived";
    Some(match error.kind() {
        Kind::WrongKey => "the key is taken from `ANTHROPIC_API_KEY`".to_owned(),
        Kind::NotFound => missing.to_owned(),
        Kind::Conflict => "somebody else is changing it: try again in a moment".to_owned(),
        Kind::TooLarge => "leave out what the skill does not need".to_owned(),
        Kind::RateLimited => match error.retry_after() {
            Some(wait) => format!("try again in {} seconds", wait.as_secs().max(1)),
            None => "try again in a while".to_owned(),
        },
        _ if error.may_have_happened() => again.to_owned(),
        Kind::Service | Kind::Timeout | Kind::Cut => "try again in a while".to_owned(),
        Kind::Connection => "is the network there, and `ANTHROPIC_BASE_URL` right?".to_owned(),
        _ => return None,
    })
}

/// What cannot be done at all.
pub(crate) fn failed(error: SyncError, missing: &str) -> Failure {
    match error {
        SyncError::Service(error) => refused(&error, missing),
        error => {
            let message = printable(&error.to_string());
            match error.kind() {
                SyncErrorKind::Storage => Failure::usage(message).hint(ANOTHER_FOLDER),
                SyncErrorKind::Busy => Failure::internal(message),
                _ => Failure::usage(message),
            }
        }
    }
}
