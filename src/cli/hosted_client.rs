//! The client of the model's service for commands, and its errors as text.

use conjure::anthropic::hosted::{HostedError, HostedErrorKind, SyncError, SyncErrorKind};
use conjure::anthropic::{self, Client, ConfigError, HttpConfigError};
use conjure::session::Redactor;
use conjure::{Config, ProcessEnv};
use secrecy::ExposeSecret as _;

use crate::cli::cli_error::ExitStatus;
use crate::cli::cli_error::{CliError, OTHER_DATA_DIR_HINT};
use crate::cli::terminal::{Terminal, printable};

/// The hint if the service does not know something that the command names.
pub(crate) const REMOTE_LIST_HINT: &str = "`conjure skills remote list` lists what there is";

/// Creates the client with the key of this process. The key is redacted from here on.
pub(crate) fn client(
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<Client, CliError> {
    let key = environment.api_key().ok_or_else(|| {
        CliError::usage("the service needs a key, and `ANTHROPIC_API_KEY` is not set")
            .with_hint("`export ANTHROPIC_API_KEY=…`")
    })?;
    terminal.redact(Redactor::new([("ANTHROPIC_API_KEY", key.expose_secret())]));
    Client::new(&anthropic::config(config, key)).map_err(unconfigured_error)
}

/// The error of an unusable client configuration.
pub(crate) fn unconfigured_error(error: ConfigError) -> CliError {
    let failure = CliError::usage(error.to_string());
    match error {
        ConfigError::Http(HttpConfigError::Key { .. }) => {
            failure.with_hint("the key is taken from `ANTHROPIC_API_KEY`")
        }
        ConfigError::Http(HttpConfigError::BaseUrl { .. }) => failure
            .with_hint("it is taken from `ANTHROPIC_BASE_URL`, or from `base_url` in the configuration file"),
        _ => failure,
    }
}

/// The error of the service or of the connection to it. `missing` is the hint if an object is not found.
pub(crate) fn service_error(error: &HostedError, missing: &str) -> CliError {
    use HostedErrorKind as Kind;
    let exit = match error.kind() {
        Kind::WrongKey | Kind::NotFound | Kind::InvalidId | Kind::InvalidSkill | Kind::OverLimit => {
            ExitStatus::Usage
        }
        _ => ExitStatus::Failed,
    };
    let failure = CliError::new(exit, printable(&error.to_string()));
    match hint(error, missing) {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

/// The hint for an error of the service.
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

/// The error of a synchronisation.
pub(crate) fn sync_error(error: SyncError, missing: &str) -> CliError {
    match error {
        SyncError::Service(error) => service_error(&error, missing),
        error => {
            let message = printable(&error.to_string());
            match error.kind() {
                SyncErrorKind::Storage => CliError::usage(message).with_hint(OTHER_DATA_DIR_HINT),
                SyncErrorKind::Busy => CliError::internal(message),
                _ => CliError::usage(message),
            }
        }
    }
}
