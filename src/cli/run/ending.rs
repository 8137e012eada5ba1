//! How a run ended: its answer, its exit code, and what the user is told besides.

use conjure::{Limit, SessionId, StopReason, ToolCall, TurnStop, stop_error};

use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::host::{Host, Keeping};
use crate::cli::run::chronicle::End;
use crate::cli::terminal::{Terminal, printable};

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ending {
    /// The answer, or what there is of it.
    text: String,
    /// The exit code, or why there is no whole answer.
    result: Result<Exit, Failure>,
}

/// Why a turn was interrupted from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// By a signal, which has this exit code.
    Signal(Exit),
    /// The time for the whole run was over.
    OutOfTime,
    /// Nobody reads the events any more.
    Unread,
}

impl Ending {
    /// The ending of a turn with this text, after so many calls of the model, which was interrupted from here for `cause`.
    pub(crate) fn of(end: &End, text: String, model_calls: u32, cause: Option<Cause>) -> Self {
        let stop = match end {
            End::Stopped(TurnStop::Interrupted) => match cause {
                Some(Cause::Signal(exit)) => return Self { text: String::new(), result: Ok(exit) },
                Some(Cause::Unread) => return Self::unread(),
                // Our own limit: as if the turn had had it.
                Some(Cause::OutOfTime) => TurnStop::Deadline,
                None => TurnStop::Interrupted,
            },
            End::Stopped(stop) => stop.clone(),
            End::Waits(call) => return Self::failed(waits(call)),
        };
        let Some(error) = stop_error(&stop, model_calls) else {
            return Self { text, result: Ok(Exit::Done) };
        };
        let failure = Failure::from(error);
        let (exit, hint) = match &stop {
            TurnStop::Limit(Limit::DeniedCalls) => (Exit::Denied, None),
            TurnStop::Refused => {
                (Exit::Refused, Some("the model's words above say why, if it gave a reason"))
            }
            TurnStop::Cut(StopReason::MaxTokens) => (Exit::Limit, Some("ask for less at once")),
            TurnStop::Cut(StopReason::ContextWindowExceeded) => {
                (Exit::Limit, Some("give less text; large data belongs into a file (`--file`)"))
            }
            TurnStop::Deadline => (Exit::Limit, Some("raise `--timeout`")),
            TurnStop::Limit(_) => (Exit::Limit, None),
            TurnStop::ModelFailed(_) => (failure.exit, None),
            _ => (Exit::Failed, None),
        };
        let failure =
            Failure { exit, hint: hint.map(str::to_owned).or(failure.hint), message: failure.message };
        let is_partial = matches!(stop, TurnStop::Cut(_) | TurnStop::Refused);
        let text = if is_partial { text } else { String::new() };
        Self { text, result: Err(failure) }
    }

    /// There is none, for this reason.
    pub(crate) const fn failed(failure: Failure) -> Self {
        Self { text: String::new(), result: Err(failure) }
    }

    /// Nobody reads standard output any more, so nobody wants to know more.
    const fn unread() -> Self {
        Self { text: String::new(), result: Ok(Exit::Failed) }
    }

    /// Prints the answer, unless the events hold it, and gives the exit code or what went wrong. What there is of
    /// an answer that is not whole is no answer: it goes to standard error.
    pub(crate) fn tell(self, as_events: bool, terminal: &Terminal) -> Result<Exit, Failure> {
        if self.result.is_err() && !self.text.is_empty() {
            terminal.note(&self.text);
        } else if matches!(self.result, Ok(Exit::Done)) && !as_events {
            if self.text.trim().is_empty() {
                terminal.warning("the model's last answer holds no text");
            } else {
                terminal.output(&self.text);
            }
        }
        // An answer that nobody could read is not done.
        match self.result {
            Ok(Exit::Done) if terminal.output_is_closed() => Ok(Exit::Failed),
            result => result,
        }
    }
}

/// Nobody was there to decide on this call.
fn waits(call: &ToolCall) -> Failure {
    let told = format!("a call of `{}` waits for a person, and nobody decided", printable(&call.name));
    Failure::new(Exit::Waits, told)
}

/// The same, and what decides on it when this command has ended.
pub(crate) fn nobody_decides(host: &Host, session: SessionId, call: &ToolCall) -> Failure {
    waits(call).hint(match host.keeping {
        Keeping::Kept => host.how_to_decide(session, &call.id),
        Keeping::Ephemeral => {
            "run it at a terminal, where it asks, or keep the session, so that it can be decided on later"
                .to_owned()
        }
    })
}

/// `--timeout` passed before the model was called.
pub(crate) fn out_of_time() -> Failure {
    Failure::new(Exit::Limit, "the deadline passed before the conversation began").hint("raise `--timeout`")
}

#[cfg(test)]
mod tests {
    use conjure::{
        Access, Approver, Authorization, Block, CallTraits, Composition, LoopOptions, Message, Request,
        ToolDefinition, ToolOutcome, Toolbox, TurnOutcome, approver_fn, model_fn, parse_response, tool_fn,
    };

    use super::*;

    /// The exit code of a conversation in which the model calls a tool again and again, under this policy.
    async fn exit_under(policy: impl Approver + 'static) -> Exit {
        let definition = ToolDefinition {
            name: "knock".to_owned(),
            description: "Knocks.".to_owned(),
            input_schema: serde_json::json!({"type": "object"}),
        };
        let traits = CallTraits { access: Access::Shared, idempotent: true };
        let tool = tool_fn(definition, traits, |_, _| async { ToolOutcome::text("knock") });
        let toolbox = Toolbox::builder().tool(tool).approver(policy).build().unwrap();
        let model = model_fn(|request: Request| async move {
            let call = serde_json::json!({"type": "tool_use", "id": format!("toolu_{}", request.call),
                                          "name": "knock", "input": {"time": request.call}});
            let body = serde_json::json!({"stop_reason": "tool_use", "content": [call]});
            Ok(parse_response(&body.to_string()).unwrap())
        });
        let messages = vec![Message::user(vec![Block::text("Go")])];
        let composer = Composition::default();
        let options = LoopOptions::default();
        let outcome =
            conjure_conversation::run_loop(messages, &model, &composer, &toolbox, options).await.unwrap();
        let end = match outcome.stop {
            TurnOutcome::Finished(stop) => End::Stopped(stop),
            TurnOutcome::RequiresAction(waiting) => End::Waits(waiting[0].call.clone()),
        };
        Ending::of(&end, String::new(), 1, None).result.unwrap_err().exit
    }

    #[tokio::test]
    async fn a_denial_that_ends_the_run_has_its_own_code() {
        let deny = |_| async { Authorization::Deny { reason: "no".to_owned() } };
        assert_eq!(exit_under(approver_fn(deny)).await, Exit::Denied);
        let ask = |_| async { Authorization::Ask { reason: "may it?".to_owned() } };
        assert_eq!(exit_under(approver_fn(ask)).await, Exit::Waits);
        let allow = |_| async { Authorization::Allow };
        assert_eq!(exit_under(approver_fn(allow)).await, Exit::Limit);
    }
}
