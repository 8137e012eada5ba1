//! `conjure keys` in a program that was built without the server.

use std::sync::Arc;

use conjure::{Config, ProcessEnv};

use crate::cli::args::KeysCommand;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::terminal::Terminal;

/// Prints how to get a build with the server.
pub(crate) async fn keys(
    command: KeysCommand,
    _: Config,
    _: ProcessEnv,
    terminal: Arc<Terminal>,
) -> ExitStatus {
    let what = match command {
        KeysCommand::Create { name, scopes: _, expires_in_days: _, data_args } => {
            format!("the key `{name}` of `{}` cannot be created", data_args.tenant)
        }
        KeysCommand::List { format: _, data: _ } => "the keys cannot be listed".to_owned(),
        KeysCommand::Revoke { ids, data: _ } => format!("{} cannot be revoked", ids.join(", ")),
    };
    let error = CliError::usage(format!("{what}: this program was built without the feature `serve`"));
    terminal.error(&error.with_hint("install the command with `cargo install --path . --features full`"));
    ExitStatus::Usage
}
