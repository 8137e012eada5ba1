//! The options of commands for skills at the model's service.

use std::path::PathBuf;

use clap::ValueEnum;

const PUSH_EXAMPLES: &str = "\
Examples:
  conjure skills push skills --dry-run
  conjure skills push skills
  conjure skills remote list --source custom

The key is taken from `ANTHROPIC_API_KEY`; `ANTHROPIC_BASE_URL` names another address of the
service. The command finds an uploaded skill by the record of the upload, else by its title, which
is its name. Nothing is deleted: the command lists skills that are no longer in the directory. Run it
again to complete an upload that failed. Exit code 1: at least one skill differs at the service.";

#[derive(Debug, clap::Args)]
#[command(after_help = PUSH_EXAMPLES)]
pub(crate) struct PushArgs {
    /// The directory of skills; also a skill's own directory, or a .skill package.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Show what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    pub(crate) json: bool,
    /// The data directory with the index of uploaded skills, instead of the configured one.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum RemoteCommand {
    /// List the skills.
    List {
        /// Only the service's own skills, or only yours.
        #[arg(long, value_enum, value_name = "SOURCE")]
        source: Option<RemoteSource>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Delete skills with all their versions, without asking.
    Delete {
        /// The skills' ids.
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        /// The data directory with the index of uploaded skills, instead of the configured one.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
}

/// The publisher of a skill at the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RemoteSource {
    /// The service.
    Anthropic,
    /// You.
    Custom,
}
