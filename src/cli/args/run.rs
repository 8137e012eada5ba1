//! The options of `conjure run`.

use std::path::PathBuf;
use std::time::Duration;

use crate::cli::args::shared::new_session::NewSessionArgs;
use crate::cli::args::shared::values::parse_seconds;

const RUN_EXAMPLES: &str = "\
Examples:
  conjure run --skills fixtures/skills --script fixtures/scripts/sales-report.yaml \\
      --file fixtures/data/sales.csv \"Which region grew fastest?\"
  conjure run --skills fixtures/skills --model claude-sonnet-4-5 \\
      --file fixtures/data/sales.csv \"Which region grew fastest?\"
  git diff | conjure run --script review.yaml --json \"Review this\" > events.jsonl
  conjure run --model claude-sonnet-4-5 --workspace . --allow view \"Tidy up this directory\"

The final answer is all that goes to standard output; with --json it is the session's events, one a
line. Progress goes to standard error. Standard input, unless it is a terminal, is extra context.
The session is kept, unless --ephemeral is given: `conjure sessions resume ID` continues it.

A tool call that waits for a person (--ask, --allow) is asked about at the terminal. Without a
terminal the command ends with code 6, and says how `conjure sessions decide` continues.";

#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The prompt.
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: String,
    #[command(flatten)]
    pub(crate) new_session: NewSessionArgs,
    /// A file to copy into the model's workspace; may be repeated.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Vec<PathBuf>,
    /// A directory for copies of the files that the run produces. Existing files are not overwritten.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// The maximum size of all copies together, such as `500m` or `10g`. Holes of sparse files count a 64th.
    #[arg(long, value_name = "SIZE", default_value = "2g", value_parser = conjure::config::parse_size)]
    pub(crate) out_limit: u64,
    /// Print the session's events on standard output, one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// The timeout of the whole run, in seconds.
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub(crate) timeout: Option<Duration>,
}
