//! Asks the user at the terminal for approval.
//!
//! State: the rules that were granted while the command runs, for calls that were asked for before. An abandoned
//! question leaves a thread that waits for a line; it ends with the process, and no further question is asked.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::sync::{Arc, Mutex, PoisonError};

use conjure::conversation::Decision;
use conjure::skill::AllowRule;
use conjure::tool::ToolCall;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};

use crate::cli::approvals::approval_prompt::{ApprovalReply, describe_call, parse_reply};
use crate::cli::approvals::grant::{grant_always, rule_for_call, rule_matches};
use crate::cli::terminal::Terminal;

/// The user at the terminal of this process.
#[derive(Debug)]
pub(crate) struct TerminalApprover {
    terminal: Arc<Terminal>,
    granted: Mutex<Vec<AllowRule>>,
}

/// The replies that a question accepts.
struct ReplyChoices {
    prompt: String,
    has_always: bool,
}

/// The outcome of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApprovalOutcome {
    Decided(Decision),
    /// The input ended, or nobody can be asked now: the call keeps waiting.
    Undecided,
}

impl TerminalApprover {
    /// The approver of this terminal; `None` unless standard input and standard error are terminals.
    pub(crate) fn for_terminal(terminal: &Arc<Terminal>) -> Option<Self> {
        let sits = io::stdin().is_terminal() && io::stderr().is_terminal();
        sits.then(|| Self { terminal: Arc::clone(terminal), granted: Mutex::default() })
    }

    /// Asks until the reply is clear.
    pub(crate) async fn ask(&self, call: &ToolCall) -> ApprovalOutcome {
        let granted = || self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        // All calls of a response are waiting before the first one is decided.
        if granted().iter().any(|rule| rule_matches(rule, call)) {
            return ApprovalOutcome::Decided(Decision::Allow);
        }
        let (terminal, asked) = (Arc::clone(&self.terminal), call.clone());
        let rule = rule_for_call(call);
        let choices = reply_choices(rule.as_ref());
        let answered = tokio::task::spawn_blocking(move || {
            terminal.note(describe_call(&asked, |text| terminal.redacted(text).into_owned()).trim_end());
            read_reply(&terminal, &choices)
        });
        match answered.await.ok().flatten() {
            Some(ApprovalReply::Allow) => ApprovalOutcome::Decided(Decision::Allow),
            Some(ApprovalReply::Always) => {
                granted().extend(rule);
                ApprovalOutcome::Decided(grant_always(call).unwrap_or(Decision::Allow))
            }
            Some(ApprovalReply::Deny(reason)) => ApprovalOutcome::Decided(Decision::Deny { reason }),
            Some(ApprovalReply::Unclear) | None => ApprovalOutcome::Undecided,
        }
    }
}

/// The replies for a call. Without a rule it can only be allowed alone.
fn reply_choices(rule: Option<&AllowRule>) -> ReplyChoices {
    let always =
        rule.map_or_else(String::new, |rule| format!(", a: yes, and always `{rule}` in this session"));
    ReplyChoices { prompt: format!("allow it? y: yes, n [WHY]: no{always} > "), has_always: rule.is_some() }
}

/// Reads lines until one is a reply; `None` at the end of the input. Blocks.
fn read_reply(terminal: &Terminal, choices: &ReplyChoices) -> Option<ApprovalReply> {
    let input = io::stdin();
    // In a background process group a read would stop the whole program.
    if tcgetpgrp(&input).ok() != Some(rustix::process::getpgrp()) {
        return None;
    }
    // Input typed before the question is no reply.
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
        match parse_reply(&String::from_utf8_lossy(&line)) {
            ApprovalReply::Unclear => {}
            ApprovalReply::Always if !choices.has_always => {}
            clear => return Some(clear),
        }
    }
}
