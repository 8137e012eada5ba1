//! `conjure acp` in a program that was built without it.

use std::sync::Arc;

use conjure::{Config, ProcessEnv};

use crate::cli::args::AcpArgs;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::terminal::Terminal;

/// Prints how to get a build with it.
pub(crate) async fn acp(args: AcpArgs, _: Config, _: ProcessEnv, terminal: Arc<Terminal>) -> ExitStatus {
    let AcpArgs { model: _, script: _, skills: _, mcp: _, sandbox: _, network: _, data_args } = args;
    let error = CliError::usage(format!(
        "sessions of `{}` cannot be opened in an editor: this program was built without the feature `acp`",
        data_args.tenant
    ));
    terminal.error(&error.with_hint("install the command with `cargo install --path . --features full`"));
    ExitStatus::Usage
}
