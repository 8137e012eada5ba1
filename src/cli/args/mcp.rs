//! The options of `conjure mcp`.

use std::path::PathBuf;

use conjure::sandbox::NetworkPolicy;

use crate::cli::args::sessions::DataArgs;
use crate::cli::args::shared::values::parse_network_arg;

const SERVE_EXAMPLES: &str = "\
Examples:
  conjure mcp serve --skills fixtures/skills
  conjure mcp serve --workspace . --network limited:pypi.org
  conjure mcp serve --model claude-sonnet-4-5

It speaks MCP over standard input and output; another program starts it. It offers the skills as
tools, prompts and resources, and the tools of a sandbox. With a model it also offers `run_agent`,
which gives a task to an agent of its own.";

const LOGIN_EXAMPLES: &str = "\
Examples:
  conjure mcp login issues
  conjure mcp login https://mcp.example.com/mcp --scope read

It prints an address to open in a browser of this machine, and ends when you have signed in. The
tokens are sealed in the data directory, and renewed when they end. From another machine, forward the
port: `--port 8765` here, and `ssh -L 8765:127.0.0.1:8765 HOST` there.";

#[derive(Debug, clap::Args)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) command: McpCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum McpCommand {
    /// Serve skills and a sandbox to a program that speaks MCP.
    Serve(McpServeArgs),
    /// Sign in at an MCP server by a browser. Sessions of the tenant then use its tools.
    Login(McpLoginArgs),
    /// Forget a sign-in.
    Logout(McpLogoutArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = LOGIN_EXAMPLES)]
pub(crate) struct McpLoginArgs {
    /// The server: its name in the configuration (`[mcp.NAME]`), or its URL.
    #[arg(value_name = "NAME|URL")]
    pub(crate) server: String,
    /// The client's id at the authorization server, or the URL of its metadata document, where clients cannot register themselves.
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: Option<String>,
    /// The variable of the environment that holds the client's secret.
    #[arg(long, value_name = "VARIABLE", requires = "client_id")]
    pub(crate) client_secret_env: Option<String>,
    /// A scope to ask for, in addition to those of an earlier sign-in. Without it: the scopes that the server names. May be repeated.
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(crate) scopes: Vec<String>,
    /// The port of this machine that the browser comes back to; a free one by default.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
    #[command(flatten)]
    pub(crate) data_args: DataArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct McpLogoutArgs {
    /// The server: its name in the configuration (`[mcp.NAME]`), or its URL.
    #[arg(value_name = "NAME|URL")]
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) data_args: DataArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct McpServeArgs {
    /// A directory of skills; may be repeated, the first wins. Instead of the configured ones.
    #[arg(long, value_name = "DIR")]
    pub(crate) skills: Vec<PathBuf>,
    /// Where tools run: `jail` (the default), `docker`, or `local`, a plain child process without isolation; `jail-or-local` is `local`
    /// where this machine permits no jail.
    #[arg(long, value_name = "KIND")]
    pub(crate) sandbox: Option<String>,
    /// The network access of tools: `none` (the default), `limited:HOST,...` or `full`.
    #[arg(long, value_name = "POLICY", value_parser = parse_network_arg)]
    pub(crate) network: Option<NetworkPolicy>,
    /// The directory in which tools work, instead of a temporary one.
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
