//! The line editor of an interactive terminal: keys, history and completion.
//!
//! State: the history of this chat, in memory only. A resumed session supplies its own messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustyline::completion::{Completer, FilenameCompleter, Pair, longest_common_prefix};
use rustyline::config::BellStyle;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{ColorMode, CompletionType, Config, Context, Editor, Helper};

use crate::cli::chat::chat_command::{Argument, COMMANDS};
use crate::cli::terminal::{printable, printable_lines};

/// The maximum number of lines in the history.
const MAX_HISTORY: usize = 1000;

/// The maximum number of paths that are listed.
const MAX_PATHS: usize = 100;

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

    /// Adds a line to the history, if it is safe to show.
    pub(super) fn remember(&mut self, line: &str) {
        if is_safe_to_show(line) {
            // The history is in memory, so adding a line does not fail.
            let _ = self.editor.add_history_entry(line);
        }
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

/// Whether the terminal shows this text as it is. The editor writes its line to the terminal unchanged, and a message may quote the text of
/// others, with escape codes or hidden characters.
fn is_safe_to_show(text: &str) -> bool {
    printable_lines(text) == text
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
            Some((name, _)) if takes_path(name) => {
                let (start, paths) = self.paths.complete(line, at, context)?;
                Ok((start, listed_paths(paths, &typed[start..])))
            }
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

/// The paths that the editor may list. A tool may have named the files, so names with control characters, or with characters that deceive
/// the reader, are left out. Instead of too many names, what they have in common is returned.
fn listed_paths(mut paths: Vec<Pair>, typed: &str) -> Vec<Pair> {
    let is_plain = |text: &str| !text.contains(char::is_control) && printable(text) == text;
    paths.retain(|path| is_plain(&path.display) && is_plain(&path.replacement));
    if paths.len() <= MAX_PATHS {
        return paths;
    }
    let common = longest_common_prefix(&paths).filter(|common| common.len() > typed.len());
    let common = common.map(|text| Pair { display: text.to_owned(), replacement: text.to_owned() });
    common.into_iter().collect()
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
    fn paths_are_listed_if_they_are_few_and_plain() {
        let pairs = |names: &[String]| -> Vec<Pair> {
            names.iter().map(|name| Pair { display: name.clone(), replacement: name.clone() }).collect()
        };
        let listed = |names: &[String], typed: &str| -> Vec<String> {
            listed_paths(pairs(names), typed).into_iter().map(|pair| pair.replacement).collect()
        };
        let names = ["a.txt", "a\x1b]0;x\x07", "a\u{202e}b", "a\nb", "a\tb", "aé漢"].map(str::to_owned);
        assert_eq!(listed(&names, "a"), ["a.txt", "aé漢"]);
        let many: Vec<String> = (0..66_000).map(|number| format!("file-{number}")).collect();
        assert_eq!(listed(&many, "f"), ["file-"]);
        assert_eq!(listed(&many, "file-"), Vec::<String>::new());
        assert_eq!(listed(&many[..MAX_PATHS], "f"), many[..MAX_PATHS]);
    }

    #[test]
    fn a_message_with_escape_codes_is_not_in_the_history() {
        for text in ["one\n\ttwo é漢", "", "👩\u{200d}👧"] {
            assert!(is_safe_to_show(text), "{text:?}");
        }
        for text in ["a\x1b]0;x\x07", "a\u{9b}2J", "a\u{202e}b", "a\rb", "a\u{e0041}"] {
            assert!(!is_safe_to_show(text), "{text:?}");
        }
    }

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
