//! Decides which tool calls run, and asks the user about the others.

mod rules;

mod approval_text;
mod grant;
mod input_form;
mod reply_reader;
mod terminal_approver;

pub(crate) use approval_text::input_lines;
pub(crate) use grant::{grant_always, grant_text};
pub(crate) use reply_reader::{ReplyLine, ReplyReader, discard_typed_input};
pub(crate) use rules::{Rules, RulesArgs};
pub(crate) use terminal_approver::{ApprovalOutcome, InputOutcome, PendingInput, TerminalApprover};
