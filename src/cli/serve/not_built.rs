//! `conjure serve` in a program that was built without the server.

use std::path::PathBuf;
use std::sync::Arc;

use conjure::{Config, ProcessEnv};

use crate::cli::args::ServeArgs;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::terminal::Terminal;

/// Prints how to get a build with the server.
pub(crate) async fn serve(
    args: ServeArgs,
    _: Option<PathBuf>,
    _: Config,
    _: ProcessEnv,
    terminal: Arc<Terminal>,
) -> ExitStatus {
    let ServeArgs { listen, certificate: _, private_key: _, script: _, sandbox: _, data_args: _ } = &args;
    let tenant = args.tenant();
    let error = CliError::usage(format!(
        "the server cannot listen on {listen} for `{tenant}`: this program was built without the feature `serve`"
    ));
    terminal.error(&error.with_hint("install the command with `cargo install --path . --features full`"));
    ExitStatus::Usage
}
