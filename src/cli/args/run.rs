//! The options of `conjure run`.

use std::path::PathBuf;
use std::time::Duration;

use conjure::hosted::HostedSkill;
use conjure::sandbox::NetworkPolicy;

use crate::cli::approvals::RulesArgs;
use crate::cli::args::sessions::DataArgs;
use crate::cli::args::values::{
    Attachment, InputArg, Variable, parse_attachment, parse_hosted, parse_input, parse_network_arg,
    parse_seconds, parse_variable,
};

const RUN_EXAMPLES: &str = "\
Examples:
  conjure run --skills fixtures/skills --script fixtures/scripts/sales-report.yaml \\
      --file fixtures/data/sales.csv \"Which region grew fastest?\"
  conjure run --skills fixtures/skills --model claude-sonnet-4-5 \\
      --file fixtures/data/sales.csv \"Which region grew fastest?\"
  git diff | conjure run --script review.yaml --json \"Review this\" > events.jsonl
  conjure run --model claude-sonnet-4-5 --workspace . --allow view \"Tidy up this folder\"

The final answer is all that goes to standard output; with --json it is the session's events, one a
line. Progress goes to standard error. Standard input, unless it is a terminal, is extra context.
The session is kept, unless with --ephemeral: `conjure sessions resume ID` goes on with it.

A tool call that --ask or --allow makes a person's business is asked for at the terminal. Where there is
none the command ends with code 6, and says how `conjure sessions decide` goes on.";

#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// What you ask.
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: String,
    /// A folder of skills; may be repeated, the first wins. Instead of the configured ones.
    #[arg(long, value_name = "DIR")]
    pub(crate) skills: Vec<PathBuf>,
    /// The model to call, with the key in `ANTHROPIC_API_KEY`.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A script that the model's words come from, instead of a model.
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// A file that the model gets in its workspace, as a copy; may be repeated.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Vec<PathBuf>,
    /// A file or a URL that the model finds as `file://NAME`, for reading; may be repeated. Without `NAME=` it has the file's name. A URL is
    /// fetched when it is first used.
    #[arg(long, value_name = "[NAME=]PATH|URL", value_parser = parse_attachment)]
    pub(crate) attach: Vec<Attachment>,
    /// A folder that gets copies of the files that the run produces. What is there already is not overwritten.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// How much may be copied there, all files together, such as `500m` or `10g`. Holes count a 64th.
    #[arg(long, value_name = "SIZE", default_value = "2g", value_parser = conjure::config::parse_size)]
    pub(crate) out_limit: u64,
    /// Skills that the model's service runs, in containers of its own: its own ones by name (`xlsx,pptx`), uploaded ones by id, each with
    /// `@VERSION` where it is not to be the newest. Nothing runs here then, unless `--sandbox`, `--skills` or `--workspace` ask for it.
    #[arg(long, value_name = "SKILL,...", value_delimiter = ',', value_parser = parse_hosted)]
    pub(crate) hosted: Vec<HostedSkill>,
    /// Where tools run: `jail` (the default), `docker`, or `local`, a plain child process that isolates nothing; `jail-or-local` is `local`
    /// where this machine permits no jail.
    #[arg(long, value_name = "KIND")]
    pub(crate) sandbox: Option<String>,
    /// The image of the container, for `--sandbox docker`.
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
    /// What tools may reach of the network: `none` (the default), `limited:HOST,...` or `full`.
    #[arg(long, value_name = "POLICY", value_parser = parse_network_arg)]
    pub(crate) network: Option<NetworkPolicy>,
    /// How much memory all tools may use together, such as `512m` or `2g`.
    #[arg(long, value_name = "SIZE", value_parser = conjure::config::parse_size)]
    pub(crate) memory: Option<u64>,
    /// How many processors they may keep busy, such as `2` or `0.5`.
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<f64>,
    /// Where tools work and leave their files, instead of a folder that stays with the session.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// A variable that tools see; `NAME` alone passes on the one of this process. May be repeated.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = parse_variable)]
    pub(crate) env: Vec<Variable>,
    /// How the model gets at a skill: it loads it with a tool (`load`, the default), or reads its SKILL.md (`view`).
    #[arg(long, value_name = "STYLE", value_parser = conjure::config::parse_activation)]
    pub(crate) activation: Option<conjure::session::SkillActivation>,
    /// A value for an input that the manifests of the skills ask for; JSON where it is not text. `NAME=@FILE` takes it from a
    /// file and `NAME=-` from standard input, where no other process sees it; a value that begins with `@` has two. May be
    /// repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_input)]
    pub(crate) input: Vec<InputArg>,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// Print the session's events on standard output, one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// How often the model may be called.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// How long the whole run may take, in seconds.
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub(crate) timeout: Option<Duration>,
    /// How long one tool call may take, in seconds.
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub(crate) tool_timeout: Option<Duration>,
    /// Write a script of this run, which `--script` can play again.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Keep nothing of the session; it cannot be resumed.
    #[arg(long)]
    pub(crate) ephemeral: bool,
    #[command(flatten)]
    pub(crate) data_args: DataArgs,
}
