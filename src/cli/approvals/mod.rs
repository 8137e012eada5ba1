//! Decides which tool calls run, and asks the user about the others.

mod tool_rules;

mod always_allow;
mod approval_text;
mod input_form;
mod reply_reader;
mod terminal_approver;

pub(crate) use always_allow::{grant_always, grant_text};
pub(crate) use approval_text::input_lines;
pub(crate) use reply_reader::{ReplyLine, ReplyReader, discard_typed_input};
pub(crate) use terminal_approver::{ApprovalOutcome, InputOutcome, PendingInput, TerminalApprover};
pub(crate) use tool_rules::{Rules, RulesArgs};
