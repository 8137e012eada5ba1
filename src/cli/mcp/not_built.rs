//! `conjure mcp serve` in a program that was built without MCP.

use std::sync::Arc;

use conjure::{Config, ProcessEnv};

use crate::cli::args::McpServeArgs;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::terminal::Terminal;

/// Says how to get it.
pub(crate) async fn serve(
    args: McpServeArgs,
    _: Config,
    _: ProcessEnv,
    terminal: Arc<Terminal>,
) -> ExitStatus {
    let McpServeArgs { skills, sandbox: _, network: _, workspace: _, model: _, script: _, data_args: _ } =
        args;
    let error = CliError::usage(format!(
        "{} folders of skills cannot be served: this program was built without the feature `mcp`",
        skills.len()
    ));
    terminal.error(&error.with_hint("install the command with `cargo install --path . --features full`"));
    ExitStatus::Usage
}
