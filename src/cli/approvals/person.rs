//! Asking whoever sits at the terminal.
//!
//! State: the tools that were allowed for as long as the command runs. A question that is given up leaves a thread behind
//! that waits for a line; it ends with the process, and nothing is asked after it.

use std::collections::HashSet;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::sync::{Arc, Mutex, PoisonError};

use conjure::{Decision, ToolCall};
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};

use crate::cli::approvals::question::{Meaning, meaning, question};
use crate::cli::terminal::Terminal;

/// Somebody at the terminal of this process.
#[derive(Debug)]
pub(crate) struct Person {
    terminal: Arc<Terminal>,
    always: Mutex<HashSet<String>>,
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Decided(Decision),
    /// The input ended, or nobody can be asked now: the call goes on waiting.
    None,
}

impl Person {
    /// Whoever reads standard error and types into standard input; nobody, unless both are a terminal.
    pub(crate) fn at(terminal: &Arc<Terminal>) -> Option<Self> {
        let sits = io::stdin().is_terminal() && io::stderr().is_terminal();
        sits.then(|| Self { terminal: Arc::clone(terminal), always: Mutex::default() })
    }

    /// Asks until the answer is clear.
    pub(crate) async fn ask(&self, call: &ToolCall) -> Answer {
        let always = || self.always.lock().unwrap_or_else(PoisonError::into_inner);
        if always().contains(&call.name) {
            return Answer::Decided(Decision::Allow);
        }
        let (terminal, asked) = (Arc::clone(&self.terminal), call.clone());
        let answered = tokio::task::spawn_blocking(move || {
            terminal.note(question(&asked, |text| terminal.redacted(text).into_owned()).trim_end());
            converse(&terminal)
        });
        match answered.await.ok().flatten() {
            Some(Meaning::Allow) => Answer::Decided(Decision::Allow),
            Some(Meaning::Always) => {
                always().insert(call.name.clone());
                Answer::Decided(Decision::Allow)
            }
            Some(Meaning::Deny(reason)) => Answer::Decided(Decision::Deny { reason }),
            Some(Meaning::Unclear) | None => Answer::None,
        }
    }
}

/// Reads lines until one is an answer; none when the input ends. Blocks.
fn converse(terminal: &Terminal) -> Option<Meaning> {
    let input = io::stdin();
    // In the background a read would stop the whole program.
    if tcgetpgrp(&input).ok() != Some(rustix::process::getpgrp()) {
        return None;
    }
    // What was typed before the question is no answer to it.
    let _ = tcflush(&input, QueueSelector::IFlush);
    loop {
        terminal.prompt("allow it? y: yes, n [WHY]: no, a: yes, and all further calls of this tool > ");
        let mut line = Vec::new();
        match input.lock().read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => {
                terminal.note("");
                return None;
            }
            Ok(_) => {}
        }
        match meaning(&String::from_utf8_lossy(&line)) {
            Meaning::Unclear => {}
            clear => return Some(clear),
        }
    }
}
