//! The options of `conjure sessions …`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use conjure::TenantId;

use crate::cli::approvals::RulesArgs;
use crate::cli::args::shared::format::Format;
use crate::cli::args::shared::mcp_servers::McpServerArgs;
use crate::cli::args::shared::values::{InputArg, Variable, parse_input, parse_seconds, parse_variable};

const SESSIONS_EXAMPLES: &str = "\
Examples:
  conjure sessions list
  conjure sessions show sesn_1f
  conjure sessions resume sesn_1f --model claude-sonnet-4-5 \"And by quarter?\"
  conjure sessions decide sesn_1f toolu_01 --allow
  conjure sessions decide sesn_1f toolu_01 --always
  conjure sessions export sesn_1f > events.jsonl
  conjure sessions fork sesn_1f --undo

The beginning of an id is enough if no other session's id begins with it.";

const RESUME_EXAMPLES: &str = "\
Examples:
  conjure sessions resume sesn_1f
  conjure sessions resume sesn_1f --env API_KEY \"And by quarter?\"

Without a prompt, it continues what was running when the session was left. A tool call whose outcome
is unknown does not run again: the model reads that its outcome is unknown. Output and exit codes
are those of `conjure run`.";

const DECIDE_EXAMPLES: &str = "\
Examples:
  conjure sessions decide sesn_1f toolu_01 --allow
  conjure sessions decide sesn_1f toolu_01 --always
  conjure sessions decide sesn_1f toolu_01 --deny --reason \"not in this directory\"

Output and exit codes are those of `conjure run`: code 6 where another call waits.";

const FORK_EXAMPLES: &str = "\
Examples:
  conjure sessions fork sesn_1f
  conjure sessions fork sesn_1f --undo
  conjure sessions fork sesn_1f --at 12

The other session stays as it is. Files of the workspace are copied as they are now: what was said
is undone, what was written is not. A directory of `--workspace` is not copied.";

/// The default tenant of the command's sessions.
pub(crate) const LOCAL_TENANT: &str = "local";

/// The data directory and the tenant of sessions.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DataArgs {
    /// The data directory, instead of the configured one.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The tenant to act for. Tenants share nothing.
    #[arg(long, value_name = "NAME", default_value = LOCAL_TENANT, value_parser = parse_tenant)]
    pub(crate) tenant: TenantId,
}

#[derive(Debug, clap::Args)]
#[command(after_help = SESSIONS_EXAMPLES)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(crate) command: SessionsCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum SessionsCommand {
    /// List sessions, the newest first.
    List {
        /// The maximum number of sessions.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Continue after a former page; its last line names the number.
        #[arg(long, value_name = "NUMBER")]
        after: Option<u64>,
        /// The output format.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
        #[command(flatten)]
        data_args: DataArgs,
    },
    /// Show the settings and the history of a session.
    Show {
        /// The session's id, or the beginning of its id.
        #[arg(value_name = "ID")]
        id: String,
        /// A variable whose value is redacted; `NAME` alone means the value from this process. May be repeated.
        #[arg(long, value_name = "NAME[=VALUE]", value_parser = parse_variable)]
        env: Vec<Variable>,
        /// The output format.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
        #[command(flatten)]
        data_args: DataArgs,
    },
    /// Continue a session.
    Resume(Box<ResumeArgs>),
    /// Decide on a tool call that waits for a person, and continue.
    Decide(Box<DecideArgs>),
    /// Start a new session with the history of another one, up to a message.
    Fork(ForkArgs),
    /// Print all events of a session.
    Export {
        /// The session's id, or the beginning of its id.
        #[arg(value_name = "ID")]
        id: String,
        /// The output format.
        #[arg(long, value_enum, default_value_t)]
        format: ExportFormat,
        /// A variable whose value is redacted; `NAME` alone means the value from this process. May be repeated.
        #[arg(long, value_name = "NAME[=VALUE]", value_parser = parse_variable)]
        env: Vec<Variable>,
        #[command(flatten)]
        data_args: DataArgs,
    },
    /// Delete a session: its events, and its own workspace.
    Delete {
        /// The session's id, or the beginning of its id.
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        data_args: DataArgs,
    },
}

#[derive(Debug, clap::Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub(crate) struct ResumeArgs {
    /// The session's id, or the beginning of its id.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The next prompt.
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// A file to copy into the model's workspace; may be repeated.
    #[arg(long, value_name = "PATH", requires = "prompt")]
    pub(crate) file: Vec<PathBuf>,
    /// The maximum number of model calls for the prompt.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "prompt")]
    pub(crate) max_turns: Option<u32>,
    #[command(flatten)]
    pub(crate) continue_args: ContinueArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = FORK_EXAMPLES)]
pub(crate) struct ForkArgs {
    /// The session's id, or the beginning of its id.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Leave out the event with this number (`seq` in `conjure sessions export`), and all later ones.
    #[arg(long, value_name = "N", conflicts_with = "undo")]
    pub(crate) at: Option<u64>,
    /// Leave out the last message, and everything after it.
    #[arg(long)]
    pub(crate) undo: bool,
    #[command(flatten)]
    pub(crate) data_args: DataArgs,
}

/// The options for continuing a session.
#[derive(Debug, clap::Args)]
pub(crate) struct ContinueArgs {
    /// The model to call, instead of the session's former one.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A script that supplies the model's responses, instead of a model.
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// A variable for tools that was not recorded, or a new value; `NAME` alone passes on the value from this process.
    /// May be repeated.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = parse_variable)]
    pub(crate) env: Vec<Variable>,
    /// A value for a sensitive input, which was not recorded, or a new value; `NAME=@FILE` reads it from a file and
    /// `NAME=-` from standard input. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_input)]
    pub(crate) input: Vec<InputArg>,
    #[command(flatten)]
    pub(crate) mcp: McpServerArgs,
    /// Print the session's events on standard output, one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// The timeout of everything together, in seconds.
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub(crate) timeout: Option<Duration>,
    /// The timeout of one tool call, in seconds.
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub(crate) tool_timeout: Option<Duration>,
    /// Write the model's new responses to a script that `--script` can replay.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// A directory for copies of the files that the session has produced. Existing files are not overwritten.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// The maximum size of all copies together, such as `500m` or `10g`. Holes of sparse files count a 64th.
    #[arg(long, value_name = "SIZE", default_value = "2g", value_parser = conjure::config::parse_size)]
    pub(crate) out_limit: u64,
    #[command(flatten)]
    pub(crate) data_args: DataArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = DECIDE_EXAMPLES)]
pub(crate) struct DecideArgs {
    /// The session's id, or the beginning of its id.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The tool call's id, or the beginning of its id; `conjure sessions show ID` lists the waiting calls.
    #[arg(value_name = "CALL")]
    pub(crate) call: String,
    /// Run the call.
    #[arg(long, conflicts_with = "deny", required_unless_present_any = ["deny", "always"])]
    pub(crate) allow: bool,
    /// Run the call, and later calls of its tool in this session. For `bash_tool`: the same command, or, for a program
    /// that starts no others (`ls`, `touch`), all simple commands that begin with it.
    #[arg(long, conflicts_with = "deny")]
    pub(crate) always: bool,
    /// Do not run the call, and tell the model so.
    #[arg(long)]
    pub(crate) deny: bool,
    /// The reason of a denial, for the model.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["allow", "always"])]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) continue_args: ContinueArgs,
}

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Its events, one JSON object a line.
    #[default]
    Jsonl,
    /// The conversation, for people.
    Markdown,
}

fn parse_tenant(text: &str) -> Result<TenantId, String> {
    TenantId::new(text).map_err(|error| error.to_string())
}
