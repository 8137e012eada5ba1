//! The options of the commands that open a session: `conjure run` and `conjure chat`.

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

/// The options of a new session.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OpenArgs {
    /// A folder of skills; may be repeated, the first wins. Instead of the configured ones.
    #[arg(long, value_name = "DIR")]
    pub(crate) skills: Vec<PathBuf>,
    /// The model to call: one of Anthropic's by its name, `openai:NAME`, `gemini:NAME`, `ollama:NAME`, or one that the configuration
    /// names. `conjure models` lists them.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A script that the model's words come from, instead of a model.
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// A file or a URL that the model finds as `file://NAME`, for reading; may be repeated. Without `NAME=` it has the file's name. A URL is
    /// fetched when it is first used.
    #[arg(long, value_name = "[NAME=]PATH|URL", value_parser = parse_attachment)]
    pub(crate) attach: Vec<Attachment>,
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
    /// How often the model may be called for one message.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// How long one tool call may take, in seconds.
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub(crate) tool_timeout: Option<Duration>,
    /// Write a script of what the model says, which `--script` can play again.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Keep nothing of the session; it cannot be resumed.
    #[arg(long)]
    pub(crate) ephemeral: bool,
    #[command(flatten)]
    pub(crate) data_args: DataArgs,
}
