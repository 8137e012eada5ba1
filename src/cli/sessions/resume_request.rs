//! The request to resume a session, from either subcommand.

use std::path::PathBuf;

use conjure::SessionId;
use conjure::conversation::Decision;
use conjure::tool::{CallId, ToolCall};

use crate::cli::approvals::{RulesArgs, grant_always};
use crate::cli::args::{ContinueArgs, DecideArgs, ResumeArgs};
use crate::cli::cli_error::CliError;
use crate::cli::terminal::printable;

/// The default reason of a denial.
const DEFAULT_DENY_REASON: &str = "the user said no";

/// A request to resume a session.
#[derive(Debug)]
pub(crate) struct ResumeRequest {
    pub(crate) id: String,
    pub(crate) action: ResumeAction,
    pub(crate) rules: RulesArgs,
    pub(crate) args: ContinueArgs,
}

/// What to do with the session.
#[derive(Debug)]
pub(crate) enum ResumeAction {
    /// Resume the unfinished turn, which must exist.
    Continue,
    /// Resume an unfinished turn if there is one. Prompts follow.
    Converse,
    /// Resume it, and then send this prompt.
    Prompt(Prompt),
    /// Decide on a waiting call, given by its id or the beginning of its id.
    Decide(String, ApprovalVerdict),
}

/// The decision on a call.
#[derive(Debug, Clone)]
pub(crate) enum ApprovalVerdict {
    /// Run it.
    Allow,
    /// Run it, and allow later calls like it.
    Always,
    /// Do not run it, for this reason.
    Deny(String),
}

/// A prompt.
#[derive(Debug)]
pub(crate) struct Prompt {
    pub(super) text: String,
    pub(super) files: Vec<PathBuf>,
    pub(super) max_turns: Option<u32>,
}

impl From<ResumeArgs> for ResumeRequest {
    fn from(args: ResumeArgs) -> Self {
        let ResumeArgs { id, prompt, rules, file: files, max_turns, continue_args } = args;
        let action = prompt
            .map_or(ResumeAction::Continue, |text| ResumeAction::Prompt(Prompt { text, files, max_turns }));
        Self { id, action, rules, args: continue_args }
    }
}

impl From<DecideArgs> for ResumeRequest {
    fn from(args: DecideArgs) -> Self {
        let DecideArgs { id, call, allow, always, deny: _, reason, continue_args } = args;
        let verdict = match (allow, always) {
            (_, true) => ApprovalVerdict::Always,
            (true, false) => ApprovalVerdict::Allow,
            (false, false) => ApprovalVerdict::Deny(reason.unwrap_or_else(|| DEFAULT_DENY_REASON.to_owned())),
        };
        let action = ResumeAction::Decide(call, verdict);
        Self { id, action, rules: RulesArgs::default(), args: continue_args }
    }
}

impl ApprovalVerdict {
    /// The decision on this call.
    pub(super) fn decision_for(&self, call: &ToolCall) -> Result<Decision, CliError> {
        Ok(match self {
            Self::Allow => Decision::Allow,
            Self::Deny(reason) => Decision::Deny { reason: reason.clone() },
            Self::Always => grant_always(call).ok_or_else(|| {
                let id = printable(call.id.as_str());
                CliError::usage(format!(
                    "the tool call `{id}` stands for no others: no rule says which commands are like it"
                ))
                .with_hint("allow it alone: `--allow`")
            })?,
        })
    }
}

/// The waiting call of this session with this id, or with this beginning of its id.
pub(super) fn find_pending_call<'c>(
    session: SessionId,
    waiting: &'c [ToolCall],
    named: &str,
) -> Result<&'c ToolCall, CliError> {
    if let Some(exact) = waiting.iter().find(|call| call.id.as_str() == named) {
        return Ok(exact);
    }
    let ids = || waiting.iter().map(|call| &call.id);
    let fits = |call: &&ToolCall| !named.is_empty() && call.id.as_str().starts_with(named);
    let fitting: Vec<&ToolCall> = waiting.iter().filter(fits).collect();
    let listed = |ids: &mut dyn Iterator<Item = &CallId>| {
        ids.map(|id| format!("`{}`", printable(id.as_str()))).collect::<Vec<_>>().join(", ")
    };
    let named = printable(named);
    match (fitting.as_slice(), waiting) {
        ([one], _) => Ok(one),
        (_, []) => Err(CliError::usage(format!("no tool call waits for a person in the session {session}"))
            .with_hint(format!("`conjure sessions show {session}` says what it did"))),
        ([], _) => Err(CliError::usage(format!(
            "no tool call `{named}` waits for a person in the session {session}"
        ))
        .with_hint(format!("those that wait: {}", listed(&mut ids())))),
        (several, _) => {
            Err(CliError::usage(format!("`{named}` could be any of {} tool calls", several.len())).with_hint(
                format!("write more of the id: {}", listed(&mut several.iter().map(|call| &call.id))),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_named_by_its_beginning_where_that_fits_one() {
        let session = SessionId::from_bits(1);
        let waiting = ["toolu_1", "toolu_12", "call_2"]
            .map(|id| ToolCall::new(id, "bash_tool", &serde_json::json!({})));
        let named =
            |text: &str| find_pending_call(session, &waiting, text).map(|call| call.id.as_str().to_owned());
        assert_eq!(named("toolu_1").unwrap(), "toolu_1");
        assert_eq!(named("call").unwrap(), "call_2");
        assert_eq!(named("toolu").unwrap_err().hint.unwrap(), "write more of the id: `toolu_1`, `toolu_12`");
        for other in ["", "toolu_3"] {
            let refused = named(other).unwrap_err();
            assert_eq!(
                refused.message,
                format!("no tool call `{other}` waits for a person in the session {session}")
            );
        }
        let none = find_pending_call(session, &[], "toolu_1").unwrap_err();
        assert!(none.message.starts_with("no tool call waits for a person"));
    }
}
