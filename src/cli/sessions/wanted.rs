//! What somebody wants of a session that goes on, whichever subcommand says it.

use std::path::PathBuf;

use conjure::{CallId, Decision, SessionId, ToolCall};

use crate::cli::approvals::{RulesArgs, always};
use crate::cli::failure::Failure;
use crate::cli::session_args::{DecideArgs, GoingArgs, ResumeArgs};
use crate::cli::terminal::printable;

/// Why not, where nobody says more.
const NO: &str = "the user said no";

/// What is wanted.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) id: String,
    pub(super) what: What,
    pub(super) rules: RulesArgs,
    pub(super) going: GoingArgs,
}

/// What is to be done with it.
#[derive(Debug)]
pub(super) enum What {
    /// It goes on with what was under way.
    GoOn,
    /// And then it is told this.
    Prompt(Prompt),
    /// A call that waits is decided on. The call is as the user named it.
    Decide(String, Verdict),
}

/// How a call is decided on.
#[derive(Debug, Clone)]
pub(super) enum Verdict {
    /// It runs.
    Allow,
    /// It runs, and so do later ones like it.
    Always,
    /// It does not, for this reason.
    Deny(String),
}

/// What it is told.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) text: String,
    pub(super) files: Vec<PathBuf>,
    pub(super) max_turns: Option<u32>,
}

impl From<ResumeArgs> for Wanted {
    fn from(args: ResumeArgs) -> Self {
        let ResumeArgs { id, prompt, rules, file: files, max_turns, going } = args;
        let what = prompt.map_or(What::GoOn, |text| What::Prompt(Prompt { text, files, max_turns }));
        Self { id, what, rules, going }
    }
}

impl From<DecideArgs> for Wanted {
    fn from(args: DecideArgs) -> Self {
        let DecideArgs { id, call, allow, always, deny: _, reason, going } = args;
        let verdict = match (allow, always) {
            (_, true) => Verdict::Always,
            (true, false) => Verdict::Allow,
            (false, false) => Verdict::Deny(reason.unwrap_or_else(|| NO.to_owned())),
        };
        let what = What::Decide(call, verdict);
        Self { id, what, rules: RulesArgs::default(), going }
    }
}

impl Verdict {
    /// The decision on this call.
    pub(super) fn on(&self, call: &ToolCall) -> Result<Decision, Failure> {
        Ok(match self {
            Self::Allow => Decision::Allow,
            Self::Deny(reason) => Decision::Deny { reason: reason.clone() },
            Self::Always => always(call).ok_or_else(|| {
                let id = printable(call.id.as_str());
                Failure::usage(format!(
                    "the tool call `{id}` stands for no others: no rule says which commands are like it"
                ))
                .hint("allow it alone: `--allow`")
            })?,
        })
    }
}

/// The call that waits in this session and is named so: by its id, or by the beginning of it.
pub(super) fn waiting_call<'c>(
    session: SessionId,
    waiting: &'c [ToolCall],
    named: &str,
) -> Result<&'c ToolCall, Failure> {
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
        (_, []) => Err(Failure::usage(format!("no tool call waits for a person in the session {session}"))
            .hint(format!("`conjure sessions show {session}` says what it did"))),
        ([], _) => {
            Err(Failure::usage(format!("no tool call `{named}` waits for a person in the session {session}"))
                .hint(format!("those that wait: {}", listed(&mut ids()))))
        }
        (several, _) => {
            Err(Failure::usage(format!("`{named}` could be any of {} tool calls", several.len()))
                .hint(format!("write more of the id: {}", listed(&mut several.iter().map(|call| &call.id)))))
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
            |text: &str| waiting_call(session, &waiting, text).map(|call| call.id.as_str().to_owned());
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
        let none = waiting_call(session, &[], "toolu_1").unwrap_err();
        assert!(none.message.starts_with("no tool call waits for a person"));
    }
}
