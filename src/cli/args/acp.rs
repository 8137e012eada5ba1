//! The options of `conjure acp`.

use std::path::PathBuf;

use conjure::config::McpServerSpec;
use conjure::sandbox::NetworkPolicy;

use crate::cli::args::sessions::DataArgs;
use crate::cli::args::shared::values::{parse_mcp_server, parse_network_arg};

const ACP_EXAMPLES: &str = "\
Examples:
  conjure acp --model claude-sonnet-4-5
  conjure acp --model ollama:qwen3 --skills skills --sandbox jail

An editor starts it, and talks to it over standard input and output by the Agent Client Protocol.
Its sessions are kept like all others: `conjure sessions list` has them.";

#[derive(Debug, clap::Args)]
#[command(after_help = ACP_EXAMPLES)]
pub(crate) struct AcpArgs {
    /// The model to call: one of Anthropic's by its name, `openai:NAME`, `gemini:NAME`, `ollama:NAME`, or a name from the configuration.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A script that supplies the model's responses, instead of a model.
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// A directory of skills; may be repeated, the first wins. Instead of the configured ones.
    #[arg(long, value_name = "DIR")]
    pub(crate) skills: Vec<PathBuf>,
    /// An MCP server whose tools the model has: `NAME=COMMAND` or `NAME=URL`; may be repeated.
    #[arg(long, value_name = "NAME=COMMAND|URL", value_parser = parse_mcp_server)]
    pub(crate) mcp: Vec<McpServerSpec>,
    /// Where tools run: `jail` (the default), `docker`, or `local`, a plain child process without isolation; `jail-or-local` is `local`
    /// where this machine permits no jail.
    #[arg(long, value_name = "KIND")]
    pub(crate) sandbox: Option<String>,
    /// The network access of tools: `none` (the default), `limited:HOST,...` or `full`.
    #[arg(long, value_name = "POLICY", value_parser = parse_network_arg)]
    pub(crate) network: Option<NetworkPolicy>,
    #[command(flatten)]
    pub(crate) data_args: DataArgs,
}
