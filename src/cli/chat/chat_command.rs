//! The meaning of a line of the user: a message, or a command that begins with `/`.

use crate::cli::cli_error::CliError;
use crate::cli::terminal::printable;

/// A command of the chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChatCommand {
    Help,
    Skills,
    Model,
    Attach,
    Files,
    Undo,
    Export,
    Quit,
}

/// What a command expects after its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Argument {
    None,
    /// A path, with this name in the help.
    Path(&'static str),
    /// A name, with this description in the help. It may be missing.
    Optional(&'static str),
}

/// The description of a command.
#[derive(Debug)]
pub(super) struct CommandInfo {
    pub(super) command: ChatCommand,
    pub(super) name: &'static str,
    pub(super) argument: Argument,
    /// What it does, as a sentence without the final period.
    pub(super) meaning: &'static str,
}

/// All commands, in the order of the help.
pub(super) const COMMANDS: [CommandInfo; 8] = [
    CommandInfo {
        command: ChatCommand::Help,
        name: "/help",
        argument: Argument::None,
        meaning: "list the commands",
    },
    CommandInfo {
        command: ChatCommand::Skills,
        name: "/skills",
        argument: Argument::None,
        meaning: "list the skills of this session",
    },
    CommandInfo {
        command: ChatCommand::Model,
        name: "/model",
        argument: Argument::Optional("[NAME]"),
        meaning: "say which model answers, or let another one answer from now on",
    },
    CommandInfo {
        command: ChatCommand::Attach,
        name: "/attach",
        argument: Argument::Path("PATH"),
        meaning: "give a file or a URL to the model with the next message",
    },
    CommandInfo {
        command: ChatCommand::Files,
        name: "/files",
        argument: Argument::None,
        meaning: "list the files that the session has produced",
    },
    CommandInfo {
        command: ChatCommand::Undo,
        name: "/undo",
        argument: Argument::None,
        meaning: "remove the last message and its answer; files stay",
    },
    CommandInfo {
        command: ChatCommand::Export,
        name: "/export",
        argument: Argument::Path("FILE"),
        meaning: "write the conversation as Markdown, or as events to `*.jsonl`",
    },
    CommandInfo {
        command: ChatCommand::Quit,
        name: "/quit",
        argument: Argument::None,
        meaning: "leave; the session stays",
    },
];

/// What a line means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChatInput<'l> {
    /// The line has no content.
    Nothing,
    /// A message to the model.
    Message(&'l str),
    /// A command and its argument, which is empty if it has none.
    Command(ChatCommand, &'l str),
}

/// Parses a line. A line that begins with a space is always a message.
pub(super) fn parse(line: &str) -> Result<ChatInput<'_>, CliError> {
    if line.trim().is_empty() {
        return Ok(ChatInput::Nothing);
    }
    if !line.starts_with('/') {
        return Ok(ChatInput::Message(line));
    }
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = argument.trim();
    let Some(info) = COMMANDS.iter().find(|info| info.name == name) else {
        return Err(unknown_command(name));
    };
    match info.argument {
        Argument::None if !argument.is_empty() => {
            Err(CliError::usage(format!("`{name}` takes nothing after its name")))
        }
        Argument::Path(what) if argument.is_empty() => {
            Err(CliError::usage(format!("`{name}` needs a path: `{name} {what}`")))
        }
        _ => Ok(ChatInput::Command(info.command, unquoted(argument))),
    }
}

fn unknown_command(name: &str) -> CliError {
    let shown: String = printable(name).chars().take(40).collect();
    CliError::usage(format!("there is no command `{shown}`"))
        .with_hint("`/help` lists the commands; a message that begins with `/` needs a space before it")
}

/// Removes the quotes around a path, which many users type.
fn unquoted(argument: &str) -> &str {
    ['"', '\'']
        .into_iter()
        .find_map(|quote| argument.strip_prefix(quote)?.strip_suffix(quote))
        .filter(|inner| !inner.is_empty())
        .unwrap_or(argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_message_unless_it_begins_with_a_slash() {
        for (line, expected) in [
            ("", ChatInput::Nothing),
            (" \t", ChatInput::Nothing),
            ("Hello /help", ChatInput::Message("Hello /help")),
            (" /etc/passwd has what?", ChatInput::Message(" /etc/passwd has what?")),
            ("/help", ChatInput::Command(ChatCommand::Help, "")),
            ("/help ", ChatInput::Command(ChatCommand::Help, "")),
            ("/model", ChatInput::Command(ChatCommand::Model, "")),
            ("/model ollama:qwen3", ChatInput::Command(ChatCommand::Model, "ollama:qwen3")),
            ("/attach  my file.csv ", ChatInput::Command(ChatCommand::Attach, "my file.csv")),
            ("/attach 'my file.csv'", ChatInput::Command(ChatCommand::Attach, "my file.csv")),
            ("/export \"a b.md\"", ChatInput::Command(ChatCommand::Export, "a b.md")),
            ("/export '", ChatInput::Command(ChatCommand::Export, "'")),
        ] {
            assert_eq!(parse(line).unwrap(), expected, "{line:?}");
        }
    }

    #[test]
    fn a_command_that_cannot_be_says_why() {
        for (line, expected) in [
            ("/helpme", "there is no command `/helpme`"),
            ("/", "there is no command `/`"),
            ("/\x1b[2J", "there is no command `/\\u{1b}[2J`"),
            ("/quit now", "`/quit` takes nothing after its name"),
            ("/attach", "`/attach` needs a path: `/attach PATH`"),
            ("/export  ", "`/export` needs a path: `/export FILE`"),
        ] {
            assert_eq!(parse(line).unwrap_err().message, expected, "{line:?}");
        }
        let long = format!("/{}", "x".repeat(1000));
        assert!(parse(&long).unwrap_err().message.len() < 100);
    }
}
