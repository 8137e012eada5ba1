//! Reads the user's replies to questions.
//!
//! State: none. An abandoned question of [`StandardInputReplies`] leaves a thread that waits for a line. The thread ends with the process,
//! and no further question is asked.

use std::io::{self, BufRead as _};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};

use crate::cli::terminal::Terminal;

/// The source of replies.
pub(crate) trait ReplyReader: Send + Sync {
    /// Prepares for a question. Returns whether the user can be asked now. Input that was typed before the question is not a reply.
    fn begin_question(&self) -> bool;

    /// Prints the prompt, and reads a line.
    fn reply_line(&self, prompt: String) -> BoxFuture<'_, ReplyLine>;
}

/// A line of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReplyLine {
    Line(String),
    /// The input ended.
    Ended,
    /// The user pressed Ctrl-C, which sent no signal.
    Interrupted,
}

/// Reads standard input, which must be a terminal. The terminal itself provides the line editing.
pub(super) struct StandardInputReplies {
    terminal: Arc<Terminal>,
}

impl StandardInputReplies {
    pub(super) const fn new(terminal: Arc<Terminal>) -> Self {
        Self { terminal }
    }
}

impl ReplyReader for StandardInputReplies {
    fn begin_question(&self) -> bool {
        discard_typed_input()
    }

    fn reply_line(&self, prompt: String) -> BoxFuture<'_, ReplyLine> {
        let terminal = Arc::clone(&self.terminal);
        let reading = tokio::task::spawn_blocking(move || {
            terminal.prompt(&prompt);
            let mut line = Vec::new();
            match io::stdin().lock().read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => {
                    terminal.note("");
                    ReplyLine::Ended
                }
                Ok(_) => ReplyLine::Line(String::from_utf8_lossy(&line).into_owned()),
            }
        });
        reading.map(|line| line.unwrap_or(ReplyLine::Ended)).boxed()
    }
}

/// Discards input that was typed at the terminal and not read yet. Returns whether this process may read from the terminal: a read in a
/// background process group would stop the whole program.
pub(crate) fn discard_typed_input() -> bool {
    let input = io::stdin();
    if tcgetpgrp(&input).ok() != Some(rustix::process::getpgrp()) {
        return false;
    }
    let _ = tcflush(&input, QueueSelector::IFlush);
    true
}
