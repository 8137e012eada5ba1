//! The options of `conjure chat`.

use crate::cli::args::shared::new_session::NewSessionArgs;

const CHAT_EXAMPLES: &str = "\
Examples:
  conjure chat --model claude-sonnet-4-5
  conjure chat --model claude-sonnet-4-5 --workspace . --ask bash_tool
  conjure chat --resume sesn_1f
  printf 'Greet me.\\n' | conjure chat --skills fixtures/skills \\
      --script fixtures/scripts/minimal-skill.yaml

Each line is a message, and `/help` lists the commands. Ctrl-C interrupts the model, Ctrl-D leaves.
What the model says goes to standard output, everything else to standard error.

Where standard input is not a terminal, each of its lines is a message. Then no person can be asked:
where a tool call waits for one, the command ends with code 6. Otherwise its code is that of the
first failure.";

#[derive(Debug, clap::Args)]
#[command(after_help = CHAT_EXAMPLES)]
pub(crate) struct ChatArgs {
    /// Continue this session: its id, or the beginning of its id.
    #[arg(long, value_name = "SESSION", conflicts_with_all = [
        "skills", "attach", "hosted", "sandbox", "image", "network", "memory", "cpus", "workspace",
        "activation", "max_turns", "ephemeral",
    ])]
    pub(crate) resume: Option<String>,
    #[command(flatten)]
    pub(crate) new_session: NewSessionArgs,
}
