//! `conjure mcp` in a program that was built without MCP.

use std::sync::Arc;

use conjure::{Config, ProcessEnv};

use crate::cli::args::{McpLoginArgs, McpLogoutArgs, McpServeArgs};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::terminal::Terminal;

/// Prints how to get a build with MCP.
pub(crate) async fn serve(
    args: McpServeArgs,
    _: Config,
    _: ProcessEnv,
    terminal: Arc<Terminal>,
) -> ExitStatus {
    let McpServeArgs { skills, sandbox: _, network: _, workspace: _, model: _, script: _, data_args: _ } =
        args;
    refuse(&format!("{} folders of skills cannot be served", skills.len()), &terminal)
}

/// Prints how to get a build with MCP.
pub(crate) async fn login(
    args: McpLoginArgs,
    _: Config,
    _: ProcessEnv,
    terminal: Arc<Terminal>,
) -> ExitStatus {
    let McpLoginArgs { server: _, client_id: _, client_secret_env: _, scopes: _, port: _, data_args: _ } =
        args;
    refuse("sign-in is not available", &terminal)
}

/// Prints how to get a build with MCP.
pub(crate) async fn logout(
    args: McpLogoutArgs,
    _: Config,
    _: ProcessEnv,
    terminal: Arc<Terminal>,
) -> ExitStatus {
    let McpLogoutArgs { server: _, data_args: _ } = args;
    refuse("sign-out is not available", &terminal)
}

fn refuse(what: &str, terminal: &Terminal) -> ExitStatus {
    let error = CliError::usage(format!("{what}: this program was built without the feature `mcp`"));
    terminal.error(&error.with_hint("install the command with `cargo install --path . --features full`"));
    ExitStatus::Usage
}
