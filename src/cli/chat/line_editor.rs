//! The line editor of an interactive terminal: keys, history and completion.
//!
//! State: the history of this chat, in memory only. A resumed session supplies its own messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::config::BellStyle;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{ColorMode, CompletionType, Config, Context, Editor, Helper};

use crate::cli::chat::chat_command::{Argument, COMMANDS};

/// The maximum number of lines in the history.
const MAX_HISTORY: usize = 1000;

/// Edits lines.
pub(super) struct LineEditor {
    editor: Editor<LineHelper, MemHistory>,
    line_is_empty: Arc<AtomicBool>,
}

/// The user's action at a prompt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EditedLine {
    /// A line. A pasted one may contain line ends.
    Text(String),
    /// Ctrl-C at an empty line.
    Interrupted,
    /// Ctrl-C in a line, which is discarded.
    Discarded,
    /// Ctrl-D at an empty line, or the terminal was closed.
    Closed,
    /// The terminal cannot be used.
    Failed(String),
}

impl LineEditor {
    /// An editor for messages, with these lines as its history. Fails if standard input cannot be used.
    pub(super) fn for_messages(history: &[String]) -> Result<Self, String> {
        let mut editor = Self::with_completion(Completion::Commands)?;
        for line in history {
            editor.remember(line);
        }
        Ok(editor)
    }

    /// An editor for the reply to a question. It has no history, and discards input that was typed before.
    pub(super) fn for_reply() -> Result<Self, String> {
        Self::with_completion(Completion::None)
    }

    fn with_completion(completion: Completion) -> Result<Self, String> {
        let config = Config::builder()
            .max_history_size(MAX_HISTORY)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(|error| error.to_string())?
            .completion_type(CompletionType::List)
            .bell_style(BellStyle::None)
            .color_mode(ColorMode::Disabled)
            .build();
        let history = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history).map_err(|error| error.to_string())?;
        let line_is_empty = Arc::new(AtomicBool::new(true));
        let paths = FilenameCompleter::new();
        editor.set_helper(Some(LineHelper { completion, paths, line_is_empty: Arc::clone(&line_is_empty) }));
        Ok(Self { editor, line_is_empty })
    }

    /// Adds a line to the history.
    pub(super) fn remember(&mut self, line: &str) {
        // The history is in memory, so adding a line does not fail.
        let _ = self.editor.add_history_entry(line);
    }

    /// Reads a line. Blocks. The prompt must not contain control characters.
    pub(super) fn read(&mut self, prompt: &str) -> EditedLine {
        self.line_is_empty.store(true, Ordering::Relaxed);
        match self.editor.readline(prompt) {
            Ok(line) => EditedLine::Text(line),
            Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => {
                if self.line_is_empty.load(Ordering::Relaxed) {
                    EditedLine::Interrupted
                } else {
                    EditedLine::Discarded
                }
            }
            Err(ReadlineError::Eof) => EditedLine::Closed,
            // The terminal was closed, so an error could not be shown.
            Err(ReadlineError::Errno(errno)) if errno as i32 == rustix::io::Errno::IO.raw_os_error() => {
                EditedLine::Closed
            }
            Err(error) => EditedLine::Failed(error.to_string()),
        }
    }
}

/// What the Tab key completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Completion {
    None,
    /// The names of commands, and the paths after them.
    Commands,
}

/// Completes lines, and tracks whether the line is empty.
struct LineHelper {
    completion: Completion,
    paths: FilenameCompleter,
    line_is_empty: Arc<AtomicBool>,
}

impl Completer for LineHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        if self.completion == Completion::None || !line.starts_with('/') {
            return Ok((0, Vec::new()));
        }
        let typed = &line[..at];
        match typed.split_once(char::is_whitespace) {
            None => Ok((0, command_names(typed))),
            Some((name, _)) if takes_path(name) => self.paths.complete(line, at, context),
            Some(_) => Ok((0, Vec::new())),
        }
    }
}

/// The commands that begin with this.
fn command_names(typed: &str) -> Vec<Pair> {
    let fitting = COMMANDS.iter().filter(|info| info.name.starts_with(typed));
    fitting
        .map(|info| {
            let end = if takes_path(info.name) { " " } else { "" };
            Pair { display: info.name.to_owned(), replacement: format!("{}{end}", info.name) }
        })
        .collect()
}

fn takes_path(name: &str) -> bool {
    COMMANDS.iter().any(|info| info.name == name && matches!(info.argument, Argument::Path(_)))
}

/// There are no hints. The editor asks for one after each change of the line.
impl Hinter for LineHelper {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        self.line_is_empty.store(line.is_empty(), Ordering::Relaxed);
        None
    }
}

impl Highlighter for LineHelper {}

impl Validator for LineHelper {}

impl Helper for LineHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_completed() {
        let names =
            |typed: &str| command_names(typed).into_iter().map(|pair| pair.replacement).collect::<Vec<_>>();
        assert_eq!(names("/ex"), ["/export "]);
        assert_eq!(names("/s"), ["/skills"]);
        assert_eq!(names("/x"), Vec::<String>::new());
        assert_eq!(names("/").len(), COMMANDS.len());
        assert!(takes_path("/attach") && !takes_path("/help"));
    }
}
