//! How a run ended: its answer, its exit code, and what the user is told besides.

use conjure::{Error, Limit, LoopOutcome, StopReason, TurnOutcome, TurnStop, final_text};

use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::terminal::Terminal;

/// How a run ended.
#[derive(Debug)]
pub(super) struct Ending {
    /// The answer, or what there is of it.
    text: String,
    /// The exit code, or why there is no whole answer.
    result: Result<Exit, Failure>,
}

impl Ending {
    /// The ending of a conversation that `signal` may have interrupted.
    pub(super) fn of(outcome: Result<LoopOutcome, Error>, signal: Option<Exit>) -> Self {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return Self { text: String::new(), result: Err(error.into()) },
        };
        let error = match final_text(&outcome) {
            Ok(text) => return Self { text, result: Ok(Exit::Done) },
            Err(error) => error,
        };
        let failure = Failure::from(error);
        let (exit, hint) = match &outcome.stop {
            TurnOutcome::RequiresAction(_) | TurnOutcome::Finished(TurnStop::Limit(Limit::DeniedCalls)) => {
                (Exit::Denied, None)
            }
            TurnOutcome::Finished(stop) => match stop {
                TurnStop::Interrupted => match signal {
                    Some(exit) => return Self { text: String::new(), result: Ok(exit) },
                    None => return Self::unread(),
                },
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
            },
        };
        let failure =
            Failure { exit, hint: hint.map(str::to_owned).or(failure.hint), message: failure.message };
        let is_partial = matches!(outcome.stop, TurnOutcome::Finished(TurnStop::Cut(_) | TurnStop::Refused));
        let text = if is_partial { outcome.text() } else { String::new() };
        Self { text, result: Err(failure) }
    }

    /// Nobody reads standard output any more, so nobody wants to know more.
    const fn unread() -> Self {
        Self { text: String::new(), result: Ok(Exit::Failed) }
    }

    /// Prints the answer, unless the events hold it, and gives the exit code or what went wrong. What there is of
    /// an answer that is not whole is no answer: it goes to standard error.
    pub(super) fn tell(self, as_events: bool, terminal: &Terminal) -> Result<Exit, Failure> {
        if self.result.is_err() && !self.text.is_empty() {
            terminal.note(&self.text);
        } else if matches!(self.result, Ok(Exit::Done)) && !as_events {
            if self.text.trim().is_empty() {
                terminal.warning("the model's last answer holds no text");
            } else {
                terminal.answer(&self.text);
            }
        }
        // An answer that nobody could read is not done.
        match self.result {
            Ok(Exit::Done) if terminal.output_is_closed() => Ok(Exit::Failed),
            result => result,
        }
    }
}

/// `--timeout` passed before the model was called.
pub(super) fn out_of_time() -> Failure {
    Failure::new(Exit::Limit, "the deadline passed before the conversation began").hint("raise `--timeout`")
}

#[cfg(test)]
mod tests {
    use conjure::{
        Access, Approver, Authorization, Block, CallTraits, Composition, LoopOptions, Message, Request,
        ToolDefinition, ToolOutcome, Toolbox, approver_fn, model_fn, parse_response, tool_fn,
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
        Ending::of(Ok(outcome), None).result.unwrap_err().exit
    }

    #[tokio::test]
    async fn a_denial_that_ends_the_run_has_its_own_code() {
        let deny = |_| async { Authorization::Deny { reason: "no".to_owned() } };
        assert_eq!(exit_under(approver_fn(deny)).await, Exit::Denied);
        let ask = |_| async { Authorization::Ask { reason: "may it?".to_owned() } };
        assert_eq!(exit_under(approver_fn(ask)).await, Exit::Denied);
        let allow = |_| async { Authorization::Allow };
        assert_eq!(exit_under(approver_fn(allow)).await, Exit::Limit);
    }
}
