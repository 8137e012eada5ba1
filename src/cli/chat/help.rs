//! The texts that explain the chat to its user.

use std::fmt::Write as _;

use crate::cli::chat::chat_command::{Argument, COMMANDS};
use crate::cli::cli_error::CliError;

/// The text before the first prompt at a terminal.
pub(super) const WELCOME: &str =
    "write a message; `/help` lists the commands, Ctrl-C interrupts, Ctrl-D leaves";

/// The text when a turn is interrupted at a terminal, which has shown `^C`.
pub(super) const INTERRUPT_NOTE: &str =
    " interrupting what runs (Ctrl-C again does not wait for it, and leaves)";

/// The text when a turn is interrupted without a terminal.
pub(super) const PIPE_INTERRUPT_NOTE: &str =
    "interrupted: ending what was started (a second signal does not wait for it)";

/// The text when Ctrl-C is pressed at an empty prompt.
pub(super) const LEAVE_NOTE: &str = "Ctrl-C again leaves, as do Ctrl-D and `/quit`";

/// The text at the end of an interrupted turn.
pub(super) const INTERRUPTED_NOTE: &str = "interrupted; what was said so far is kept";

/// The text when a line is interrupted before its turn begins.
pub(super) const NOT_SENT_NOTE: &str = "interrupted; the line was not sent";

/// The text of `/help`.
pub(super) fn command_list() -> String {
    let usage = |name: &str, argument: Argument| match argument {
        Argument::None => name.to_owned(),
        Argument::Path(what) | Argument::Optional(what) => format!("{name} {what}"),
    };
    let usages: Vec<String> = COMMANDS.iter().map(|info| usage(info.name, info.argument)).collect();
    let width = usages.iter().map(String::len).max().unwrap_or_default();
    let mut text = String::new();
    for (usage, info) in usages.iter().zip(&COMMANDS) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {usage:<width$}  {}", info.meaning);
    }
    text.push_str("Every other line is a message. One that begins with `/` needs a space before it.");
    text
}

/// The error if no model is chosen, with a hint.
pub(super) fn no_model_error() -> CliError {
    CliError::usage("no model is chosen, and a chat needs one").with_hint(NO_MODEL_HELP)
}

const NO_MODEL_HELP: &str = "any of these begins a conversation:

  with a key for a model's service: Anthropic, OpenAI or Gemini
      export ANTHROPIC_API_KEY=…
      conjure chat --model claude-sonnet-4-5
      export OPENAI_API_KEY=…
      conjure chat --model openai:NAME

  with a model on this machine, without any key
      ollama pull qwen3
      conjure chat --model ollama:qwen3

  without any model: a file has its words, and the tools are real
      conjure chat --script FILE

`model = \"NAME\"` in the configuration file chooses one for good.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_fits_a_small_screen() {
        for text in [command_list(), NO_MODEL_HELP.to_owned(), WELCOME.to_owned(), LEAVE_NOTE.to_owned()] {
            assert!(text.lines().count() < 24, "{text}");
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }
}
