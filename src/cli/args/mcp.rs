//! The options of `conjure mcp`.

use std::path::PathBuf;

use conjure::sandbox::NetworkPolicy;

use crate::cli::args::sessions::DataArgs;
use crate::cli::args::values::parse_network_arg;

const SERVE_EXAMPLES: &str = "\
Examples:
  conjure mcp serve --skills fixtures/skills
  conjure mcp serve --workspace . --network limited:pypi.org
  conjure mcp serve --model claude-sonnet-4-5

It speaks MCP over standard input and output; another program starts it. It offers the skills as
tools, prompts and resources, and the tools of a sandbox. With a model it also offers `run_agent`,
which gives a task to an agent of its own.";

#[derive(Debug, clap::Args)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) command: McpCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum McpCommand {
    /// Serve skills and a sandbox to a program that speaks MCP.
    Serve(McpServeArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct McpServeArgs {
    /// A folder of skills; may be repeated, the first wins. Instead of the configured ones.
    #[arg(long, value_name = "DIR")]
    pub(crate) skills: Vec<PathBuf>,
    /// Where tools run: `jail` (the default), `docker`, or `local`, a plain child process without isolation; `jail-or-local` is `local`
    /// where this machine permits no jail.
    #[arg(long, value_name = "KIND")]
    pub(crate) sandbox: Option<String>,
    /// The network access of tools: `none` (the default), `limited:HOST,...` or `full`.
    #[arg(long, value_name = "POLICY", value_parser = parse_network_arg)]
    pub(crate) network: Option<NetworkPolicy>,
    /// The folder in which tools work, instead of a temporary one.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// The model of `run_agent`.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A script that supplies the responses of `run_agent`'s model.
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data_args: DataArgs,
}
