//! Asks the user at the terminal for approval.
//!
//! State: the rules that were granted while the command runs, for calls that were asked for before.

use std::io::{self, IsTerminal as _};
use std::sync::{Arc, Mutex, PoisonError};

use conjure::conversation::Decision;
use conjure::skill::AllowRule;
use conjure::tool::ToolCall;

use crate::cli::approvals::approval_prompt::{ApprovalReply, describe_call, parse_reply};
use crate::cli::approvals::grant::{grant_always, rule_for_call, rule_matches};
use crate::cli::approvals::reply_reader::{ReplyLine, ReplyReader, StandardInputReplies};
use crate::cli::terminal::Terminal;

/// The user at the terminal of this process.
pub(crate) struct TerminalApprover {
    terminal: Arc<Terminal>,
    replies: Arc<dyn ReplyReader>,
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
    /// The input ended, or nobody can be asked now. The call keeps waiting.
    Undecided,
    /// The user interrupted the question.
    Interrupted,
}

impl TerminalApprover {
    /// The approver of this terminal; `None` unless standard input and standard error are terminals.
    pub(crate) fn for_terminal(terminal: &Arc<Terminal>) -> Option<Self> {
        let sits = io::stdin().is_terminal() && io::stderr().is_terminal();
        let replies = StandardInputReplies::new(Arc::clone(terminal));
        sits.then(|| Self::with_replies(terminal, Arc::new(replies)))
    }

    /// An approver whose questions are answered by these lines.
    pub(crate) fn with_replies(terminal: &Arc<Terminal>, replies: Arc<dyn ReplyReader>) -> Self {
        Self { terminal: Arc::clone(terminal), replies, granted: Mutex::default() }
    }

    /// Asks until the reply is clear.
    pub(crate) async fn ask(&self, call: &ToolCall) -> ApprovalOutcome {
        let granted = || self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        // All calls of a response are waiting before the first one is decided.
        if granted().iter().any(|rule| rule_matches(rule, call)) {
            return ApprovalOutcome::Decided(Decision::Allow);
        }
        let rule = rule_for_call(call);
        let choices = reply_choices(rule.as_ref());
        self.describe(call).await;
        if !self.replies.begin_question() {
            return ApprovalOutcome::Undecided;
        }
        loop {
            let line = match self.replies.reply_line(choices.prompt.clone()).await {
                ReplyLine::Line(line) => line,
                ReplyLine::Ended => return ApprovalOutcome::Undecided,
                ReplyLine::Interrupted => return ApprovalOutcome::Interrupted,
            };
            match parse_reply(&line) {
                ApprovalReply::Allow => return ApprovalOutcome::Decided(Decision::Allow),
                ApprovalReply::Always if choices.has_always => {
                    granted().extend(rule);
                    return ApprovalOutcome::Decided(grant_always(call).unwrap_or(Decision::Allow));
                }
                ApprovalReply::Deny(reason) => return ApprovalOutcome::Decided(Decision::Deny { reason }),
                ApprovalReply::Unclear | ApprovalReply::Always => {}
            }
        }
    }

    /// Prints the call. Nobody may be reading, so a thread of its own prints.
    async fn describe(&self, call: &ToolCall) {
        let (terminal, call) = (Arc::clone(&self.terminal), call.clone());
        let printing = tokio::task::spawn_blocking(move || {
            terminal.note(describe_call(&call, |text| terminal.redacted(text).into_owned()).trim_end());
        });
        let _ = printing.await;
    }
}

/// The replies for a call. Without a rule it can only be allowed alone.
fn reply_choices(rule: Option<&AllowRule>) -> ReplyChoices {
    let always = rule.map_or_else(String::new, |rule| format!(", a: all `{rule}` in this session"));
    ReplyChoices { prompt: format!("allow it? y: yes, n [WHY]: no{always} > "), has_always: rule.is_some() }
}
