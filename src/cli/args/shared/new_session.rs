//! The options of the commands that open a session: `conjure run` and `conjure chat`.

use std::path::PathBuf;
use std::time::Duration;

use conjure::hosted::HostedSkill;
use conjure::sandbox::NetworkPolicy;

use crate::cli::approvals::RulesArgs;
use crate::cli::args::sessions::DataArgs;
use crate::cli::args::shared::mcp_servers::McpServerArgs;
use crate::cli::args::shared::values::{
    Attachment, InputArg, Variable, parse_attachment, parse_hosted, parse_input, parse_network_arg,
    parse_seconds, parse_variable,
};

/// The options of a new session.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NewSessionArgs {
    /// A directory of skills; may be repeated, the first wins. Instead of the configured ones.
    #[arg(long, value_name = "DIR")]
    pub(crate) skills: Vec<PathBuf>,
    /// The model to call: one of Anthropic's by its name, `openai:NAME`, `gemini:NAME`, `ollama:NAME`, or a name from
    /// the configuration. `conjure models` lists them.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A script that supplies the model's responses, instead of a model.
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// A file or a URL that the model can read as `file://NAME`; may be repeated. Without `NAME=` it has the file's
    /// name. A URL is fetched when it is first used.
    #[arg(long, value_name = "[NAME=]PATH|URL", value_parser = parse_attachment)]
    pub(crate) attach: Vec<Attachment>,
    /// Skills that the model's service runs in its own containers: its own skills by name (`xlsx,pptx`), uploaded ones
    /// by id, each with `@VERSION` if it should not be the newest. Nothing runs here then, unless `--sandbox`,
    /// `--skills` or `--workspace` ask for it.
    #[arg(long, value_name = "SKILL,...", value_delimiter = ',', value_parser = parse_hosted)]
    pub(crate) hosted: Vec<HostedSkill>,
    #[command(flatten)]
    pub(crate) mcp: McpServerArgs,
    /// Where tools run: `jail` (the default), `docker`, or `local`, a plain child process without isolation;
    /// `jail-or-local` is `local` if this machine permits no jail.
    #[arg(long, value_name = "KIND")]
    pub(crate) sandbox: Option<String>,
    /// The image of the container, for `--sandbox docker`.
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
    /// The network access of tools: `none` (the default), `limited:HOST,...` or `full`.
    #[arg(long, value_name = "POLICY", value_parser = parse_network_arg)]
    pub(crate) network: Option<NetworkPolicy>,
    /// The memory limit of all tools together, such as `512m` or `2g`.
    #[arg(long, value_name = "SIZE", value_parser = conjure::config::parse_size)]
    pub(crate) memory: Option<u64>,
    /// The number of processors for all tools together, such as `2` or `0.5`.
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<f64>,
    /// The directory in which tools work and leave their files, instead of one that belongs to the session.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// A variable for tools; `NAME` alone passes on the value from this process. May be repeated.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = parse_variable)]
    pub(crate) env: Vec<Variable>,
    /// How the model gets a skill: it loads it with a tool (`load`, the default), or reads its SKILL.md (`view`).
    #[arg(long, value_name = "STYLE", value_parser = conjure::config::parse_activation)]
    pub(crate) activation: Option<conjure::session::SkillActivation>,
    /// A value for an input that the manifests of the skills declare; JSON if it is not text. `NAME=@FILE` reads it
    /// from a file and `NAME=-` from standard input, where no other process sees it. A value that begins with `@` is
    /// written with two. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_input)]
    pub(crate) input: Vec<InputArg>,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// The maximum number of model calls for one message.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// The timeout of one tool call, in seconds.
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub(crate) tool_timeout: Option<Duration>,
    /// Write the model's responses to a script that `--script` can replay.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Keep nothing of the session; it cannot be resumed.
    #[arg(long)]
    pub(crate) ephemeral: bool,
    #[command(flatten)]
    pub(crate) data_args: DataArgs,
}
