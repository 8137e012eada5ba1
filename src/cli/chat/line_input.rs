//! The user's lines: from a line editor at a terminal, or as plain lines from standard input.
//!
//! State: the running read. If its caller stops waiting, the read continues, and the next call gets its line. So no line is lost. The read
//! ends with the process. Dropping [`LineInput`] restores the terminal's mode.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use conjure::ProcessEnv;
use futures_util::future::BoxFuture;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::task::JoinHandle;

use crate::cli::approvals::{ReplyLine, ReplyReader, discard_typed_input};
use crate::cli::chat::line_editor::{EditedLine, LineEditor};
use crate::cli::chat::plain_lines::{PlainLine, read_line};
use crate::cli::cli_error::CliError;
use crate::cli::run::MAX_INPUT_BYTES;
use crate::cli::terminal::{Style, Terminal};

/// The prompt.
const PROMPT: &str = "> ";

/// Terminals that cannot move the cursor.
const TERMINALS_WITHOUT_EDITING: [&str; 3] = ["dumb", "cons25", "emacs"];

/// Ends the bracketed paste mode that the line editor enables.
const END_BRACKETED_PASTE: &[u8] = b"\x1b[?2004l\r\n";

/// The source of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputKind {
    /// A person at a terminal on which lines can be edited.
    Editor,
    /// A person at another terminal.
    PlainTerminal,
    /// A file or another program.
    Pipe,
}

/// A line of the user, or another event.
#[derive(Debug)]
pub(super) enum InputLine {
    Text(String),
    /// A line that cannot be used, and the reason.
    Unusable(CliError),
    /// Ctrl-C at an empty prompt.
    Interrupted,
    /// Ctrl-C in a line, which is discarded.
    Discarded,
    /// There are no more lines.
    Closed,
    /// Lines can no longer be read.
    Failed(CliError),
}

/// Reads the lines of the user.
pub(super) struct LineInput {
    kind: InputKind,
    terminal: Arc<Terminal>,
    editor: Option<Arc<Mutex<LineEditor>>>,
    reading: tokio::sync::Mutex<Option<JoinHandle<InputLine>>>,
    /// Whether an editor has changed the mode of the terminal.
    is_editing: Arc<AtomicBool>,
    /// The mode of the terminal at the start.
    mode: Option<Termios>,
}

impl InputKind {
    /// The kind of standard input.
    pub(super) fn of_process() -> Self {
        let (input, output) = (io::stdin().is_terminal(), io::stdout().is_terminal());
        let kind = ProcessEnv::var("TERM").unwrap_or_default();
        match (input, output) {
            (false, _) => Self::Pipe,
            (true, true) if !TERMINALS_WITHOUT_EDITING.contains(&kind.as_str()) => Self::Editor,
            (true, _) => Self::PlainTerminal,
        }
    }

    /// Whether a person types at a terminal.
    pub(super) const fn is_person(self) -> bool {
        matches!(self, Self::Editor | Self::PlainTerminal)
    }
}

impl LineInput {
    /// The lines of standard input. A line editor begins with this history.
    pub(super) fn new(
        kind: InputKind,
        history: &[String],
        terminal: &Arc<Terminal>,
    ) -> Result<Self, CliError> {
        let editor = match kind {
            InputKind::Editor => Some(LineEditor::for_messages(history).map_err(unreadable)?),
            InputKind::PlainTerminal | InputKind::Pipe => None,
        };
        Ok(Self {
            kind,
            terminal: Arc::clone(terminal),
            editor: editor.map(|editor| Arc::new(Mutex::new(editor))),
            reading: tokio::sync::Mutex::default(),
            is_editing: Arc::default(),
            mode: if kind.is_person() { tcgetattr(io::stdin()).ok() } else { None },
        })
    }

    /// Reads the next line. Cancel safe: a line that arrives later is the next one.
    pub(super) async fn next_line(&self) -> InputLine {
        let mut reading = self.reading.lock().await;
        if self.kind == InputKind::PlainTerminal {
            self.terminal.part(Style::Plain, PROMPT);
        }
        let line = reading.get_or_insert_with(|| self.start_reading()).await;
        *reading = None;
        line.unwrap_or_else(|error| InputLine::Failed(unreadable(error.to_string())))
    }

    fn start_reading(&self) -> JoinHandle<InputLine> {
        let (editor, is_editing) = (self.editor.clone(), Arc::clone(&self.is_editing));
        tokio::task::spawn_blocking(move || match editor {
            None => plain_line(),
            Some(editor) => {
                let mut editor = editor.lock().unwrap_or_else(PoisonError::into_inner);
                let line = edit(&mut editor, PROMPT, &is_editing);
                if let EditedLine::Text(text) = &line
                    && !text.trim().is_empty()
                {
                    editor.remember(text);
                }
                line.into()
            }
        })
    }
}

impl ReplyReader for LineInput {
    fn begin_question(&self) -> bool {
        discard_typed_input()
    }

    fn reply_line(&self, prompt: String) -> BoxFuture<'_, ReplyLine> {
        Box::pin(async move {
            let line = match self.kind {
                InputKind::Editor => {
                    let (prompt, is_editing) = (self.terminal.cleaned(&prompt), Arc::clone(&self.is_editing));
                    let asked = tokio::task::spawn_blocking(move || match LineEditor::for_reply() {
                        Ok(mut editor) => edit(&mut editor, &prompt, &is_editing),
                        Err(reason) => EditedLine::Failed(reason),
                    });
                    asked.await.unwrap_or(EditedLine::Closed).into()
                }
                InputKind::PlainTerminal | InputKind::Pipe => {
                    self.terminal.prompt(&prompt);
                    let mut reading = self.reading.lock().await;
                    let line = reading.get_or_insert_with(|| self.start_reading()).await;
                    *reading = None;
                    line.unwrap_or(InputLine::Closed)
                }
            };
            match line {
                InputLine::Text(text) => ReplyLine::Line(text),
                // This line is not a clear reply.
                InputLine::Unusable(_) => ReplyLine::Line(String::new()),
                InputLine::Interrupted | InputLine::Discarded => ReplyLine::Interrupted,
                InputLine::Closed | InputLine::Failed(_) => ReplyLine::Ended,
            }
        })
    }
}

impl Drop for LineInput {
    fn drop(&mut self) {
        if !self.is_editing.load(Ordering::Relaxed) {
            return;
        }
        if let Some(mode) = &self.mode {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, mode);
        }
        let _ = io::stdout().lock().write_all(END_BRACKETED_PASTE);
    }
}

impl From<EditedLine> for InputLine {
    fn from(line: EditedLine) -> Self {
        match line {
            EditedLine::Text(text) if text.len() > MAX_INPUT_BYTES => Self::Unusable(too_long()),
            EditedLine::Text(text) => Self::Text(text),
            EditedLine::Interrupted => Self::Interrupted,
            EditedLine::Discarded => Self::Discarded,
            EditedLine::Closed => Self::Closed,
            EditedLine::Failed(reason) => Self::Failed(unreadable(reason)),
        }
    }
}

fn edit(editor: &mut LineEditor, prompt: &str, is_editing: &AtomicBool) -> EditedLine {
    is_editing.store(true, Ordering::Relaxed);
    let line = editor.read(prompt);
    is_editing.store(false, Ordering::Relaxed);
    line
}

fn plain_line() -> InputLine {
    match read_line(&mut io::stdin().lock(), MAX_INPUT_BYTES) {
        Ok(PlainLine::Text(text)) => InputLine::Text(text),
        Ok(PlainLine::TooLong) => InputLine::Unusable(too_long()),
        Ok(PlainLine::NotText) => InputLine::Unusable(
            CliError::usage("a line is not UTF-8 text, and was not sent")
                .with_hint("`/attach PATH` gives other data to the model"),
        ),
        Ok(PlainLine::End) => InputLine::Closed,
        Err(error) => InputLine::Failed(unreadable(error.to_string())),
    }
}

fn too_long() -> CliError {
    CliError::usage("a line is longer than 4 MiB, which is more than a model reads; it was not sent")
        .with_hint("put the text into a file; `/attach PATH` gives that to the model")
}

fn unreadable(reason: impl Into<String>) -> CliError {
    CliError::internal(format!("standard input cannot be read: {}", reason.into()))
}
