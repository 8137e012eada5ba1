//! Asking whoever sits at the terminal.
//!
//! State: the rules that were granted while the command runs, for calls that were asked for before. A question that is given up leaves a thread behind
//! that waits for a line; it ends with the process, and nothing is asked after it.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::sync::{Arc, Mutex, PoisonError};

use conjure::{AllowRule, Decision, ToolCall};
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};

use crate::cli::approvals::grant::{always, rule, speaks_of};
use crate::cli::approvals::question::{Meaning, meaning, question};
use crate::cli::terminal::Terminal;

/// Somebody at the terminal of this process.
#[derive(Debug)]
pub(crate) struct Person {
    terminal: Arc<Terminal>,
    granted: Mutex<Vec<AllowRule>>,
}

/// What a person may answer.
struct Choices {
    prompt: String,
    has_always: bool,
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
        sits.then(|| Self { terminal: Arc::clone(terminal), granted: Mutex::default() })
    }

    /// Asks until the answer is clear.
    pub(crate) async fn ask(&self, call: &ToolCall) -> Answer {
        let granted = || self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        // Calls of one answer are all asked for before the first is decided on.
        if granted().iter().any(|rule| speaks_of(rule, call)) {
            return Answer::Decided(Decision::Allow);
        }
        let (terminal, asked) = (Arc::clone(&self.terminal), call.clone());
        let rule = rule(call);
        let choices = choices(rule.as_ref());
        let answered = tokio::task::spawn_blocking(move || {
            terminal.note(question(&asked, |text| terminal.redacted(text).into_owned()).trim_end());
            converse(&terminal, &choices)
        });
        match answered.await.ok().flatten() {
            Some(Meaning::Allow) => Answer::Decided(Decision::Allow),
            Some(Meaning::Always) => {
                granted().extend(rule);
                Answer::Decided(always(call).unwrap_or(Decision::Allow))
            }
            Some(Meaning::Deny(reason)) => Answer::Decided(Decision::Deny { reason }),
            Some(Meaning::Unclear) | None => Answer::None,
        }
    }
}

/// The answers that there are. Where a call stands for no others, it can only be allowed by itself.
fn choices(rule: Option<&AllowRule>) -> Choices {
    let always =
        rule.map_or_else(String::new, |rule| format!(", a: yes, and always `{rule}` in this session"));
    Choices { prompt: format!("allow it? y: yes, n [WHY]: no{always} > "), has_always: rule.is_some() }
}

/// Reads lines until one is an answer; none when the input ends. Blocks.
fn converse(terminal: &Terminal, choices: &Choices) -> Option<Meaning> {
    let input = io::stdin();
    // In the background a read would stop the whole program.
    if tcgetpgrp(&input).ok() != Some(rustix::process::getpgrp()) {
        return None;
    }
    // What was typed before the question is no answer to it.
    let _ = tcflush(&input, QueueSelector::IFlush);
    loop {
        terminal.prompt(&choices.prompt);
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
            Meaning::Always if !choices.has_always => {}
            clear => return Some(clear),
        }
    }
}
