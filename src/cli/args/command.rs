//! The command line itself: the global options and the subcommands.

use std::path::PathBuf;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use conjure::config::VARIABLES;

use crate::cli::args::acp::AcpArgs;
use crate::cli::args::chat::ChatArgs;
#[cfg(feature = "docker")]
use crate::cli::args::image::ImageArgs;
use crate::cli::args::mcp::McpArgs;
#[cfg(feature = "model-http")]
use crate::cli::args::models::ModelsArgs;
use crate::cli::args::run::RunArgs;
use crate::cli::args::serve::ServeArgs;
use crate::cli::args::sessions::SessionsArgs;
use crate::cli::args::shared::format::Format;
use crate::cli::args::shared::keys::KeysArgs;
use crate::cli::args::skills::SkillsArgs;

const EXAMPLES: &str = "\
Examples:
  conjure run --skills fixtures/skills --script fixtures/scripts/sales-report.yaml \\
      --file fixtures/data/sales.csv \"Which region grew fastest?\"
  conjure run --skills fixtures/skills --model claude-sonnet-4-5 \\
      --file fixtures/data/sales.csv \"Which region grew fastest?\"
  conjure chat --model claude-sonnet-4-5
  conjure skills list
  conjure skills validate my-skill
  conjure sessions list
  conjure doctor

Exit codes: 0 done, 1 model or internal error, 2 usage or configuration, 3 a limit was reached,
4 refused by the model, 5 a denial ended the run, 6 a tool call waits for a person, 130 interrupted,
143 terminated.";

/// Run Agent Skills: a model, the skills it may use, and a sandbox for its tools.
#[derive(Debug, Parser)]
#[command(name = "conjure", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Args {
    /// The configuration file, instead of `~/.conjure/config.toml`.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Subcommand,
}

impl Args {
    /// The command line of this process.
    pub(crate) fn of_process() -> Result<Self, clap::Error> {
        let variables: String = VARIABLES
            .iter()
            .map(|variable| format!("\n  {}\n      {}", variable.name, variable.meaning))
            .collect();
        let command = Self::command().after_long_help(format!("{EXAMPLES}\n\nEnvironment:{variables}"));
        Self::from_arg_matches(&command.try_get_matches()?)
    }
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Subcommand {
    /// Answer one prompt with the help of skills and tools.
    Run(Box<RunArgs>),
    /// Talk with a model at the terminal.
    Chat(Box<ChatArgs>),
    /// Serve the Managed Agents API, for any client that speaks it.
    Serve(Box<ServeArgs>),
    /// Create, list and revoke the keys of the server's clients.
    Keys(KeysArgs),
    /// Serve skills and a sandbox to programs that speak MCP.
    Mcp(McpArgs),
    /// Sessions in an editor: Zed, JetBrains, Neovim and others start it.
    Acp(AcpArgs),
    /// List, check and show skills.
    Skills(SkillsArgs),
    /// List, show and continue sessions: the runs so far.
    Sessions(SessionsArgs),
    /// List the available models, and check whether their services answer.
    #[cfg(feature = "model-http")]
    Models(ModelsArgs),
    /// Build the image of containers.
    #[cfg(feature = "docker")]
    Image(ImageArgs),
    /// Report what this machine supports, and how to add what is missing.
    Doctor(DoctorArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}
