//! The options of `conjure skills …`.

use std::path::PathBuf;

#[cfg(feature = "anthropic")]
use crate::cli::args::hosted::{PushArgs, RemoteCommand};
use crate::cli::args::shared::format::Format;
use crate::cli::args::shared::values::{InputArg, Variable, parse_input, parse_variable};

#[derive(Debug, clap::Args)]
pub(crate) struct SkillsArgs {
    #[command(subcommand)]
    pub(crate) command: SkillsCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum SkillsCommand {
    /// List the skills that a session would have.
    List {
        /// A directory of skills; may be repeated, the first wins. Instead of the configured ones.
        #[arg(long, value_name = "DIR")]
        skills: Vec<PathBuf>,
        /// The output format.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Check skills against the format. Exit code 1: at least one is invalid.
    Validate(ValidateArgs),
    /// Check whether a skill could run here, and list everything that is missing. Exit code 1: something is missing.
    Check(CheckArgs),
    /// Print a skill's properties as JSON, as the format's reference validator does.
    Properties {
        /// A skill's directory, its SKILL.md, or a .skill package.
        #[arg(value_name = "PATH")]
        path: PathBuf,
    },
    /// Print the prompt section that describes these skills to a model.
    Prompt {
        /// Skills' directories, their SKILL.md, or .skill packages.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
    },
    /// Pack a skill into a `.skill` file.
    Pack {
        /// The skill's directory, or its SKILL.md.
        #[arg(value_name = "PATH")]
        path: PathBuf,
        /// The file to write, or a directory for it; by default NAME.skill in the current directory.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Upload new and changed skills of a directory to the model's service, and nothing else.
    #[cfg(feature = "anthropic")]
    Push(PushArgs),
    /// List and delete skills at the model's service.
    #[cfg(feature = "anthropic")]
    Remote {
        #[command(subcommand)]
        command: RemoteCommand,
    },
    /// Show all details of one skill.
    Inspect {
        /// A skill's directory, its SKILL.md, or a .skill package.
        #[arg(value_name = "PATH")]
        path: PathBuf,
        /// The output format.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    /// Skills' directories, their SKILL.md, or .skill packages.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Check strictly, as the format's reference validator does (the default).
    #[arg(long, conflicts_with = "lenient")]
    pub(crate) strict: bool,
    /// Check as skills are loaded: problems that can be repaired are warnings.
    #[arg(long)]
    pub(crate) lenient: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// A skill's directory, its SKILL.md, or a .skill package.
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// A value for an input of the skill's manifest; JSON where the input is not text. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_input)]
    pub(crate) input: Vec<InputArg>,
    /// The sandbox to check for: `jail`, `docker` or `local`, which is this machine itself; by default the configured
    /// one.
    #[arg(long, value_name = "KIND")]
    pub(crate) sandbox: Option<String>,
    /// The workspace to check, instead of a new temporary directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// A variable that tools would have; `NAME` alone passes on the value from this process. May be repeated.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = parse_variable)]
    pub(crate) env: Vec<Variable>,
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}
