//! The result of a run: its text, its exit status, and its error.

use conjure::conversation::{Limit, TurnStop, stop_error};
use conjure::tool::ToolCall;
use conjure::{SessionId, StopReason};

use crate::cli::approvals::PendingInput;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::{CommandRuntime, Persistence};
use crate::cli::run::printing::turn_summary::TurnEnd;
use crate::cli::terminal::{Terminal, printable};

/// The result of a run.
#[derive(Debug)]
pub(crate) struct RunResult {
    /// The text of the response, which may be incomplete.
    text: String,
    /// The exit status, or the error if there is no complete response.
    result: Result<ExitStatus, CliError>,
}

/// Why this command interrupted a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AbortCause {
    /// A signal, with its exit status.
    Signal(ExitStatus),
    /// The timeout of the whole run.
    Timeout,
    /// The reader closed the output.
    OutputClosed,
}

impl RunResult {
    /// The result of a turn with this text after this number of model calls. `cause` is the reason if this command interrupted it.
    pub(crate) fn from_turn_end(
        end: &TurnEnd,
        text: String,
        model_calls: u32,
        cause: Option<AbortCause>,
    ) -> Self {
        let stop = match end {
            TurnEnd::Stopped(TurnStop::Interrupted) => match cause {
                Some(AbortCause::Signal(exit)) => return Self { text: String::new(), result: Ok(exit) },
                Some(AbortCause::OutputClosed) => return Self::output_closed(),
                // The command's own timeout is reported like the turn's deadline.
                Some(AbortCause::Timeout) => TurnStop::Deadline,
                None => TurnStop::Interrupted,
            },
            TurnEnd::Stopped(stop) => stop.clone(),
            TurnEnd::AwaitingApproval(call) => return Self::failed(awaiting_approval(call)),
            TurnEnd::AwaitingInput(input) => return Self::failed(awaiting_input(input)),
            TurnEnd::AwaitingResult(call) => return Self::failed(awaiting_result(call)),
        };
        let Some(error) = stop_error(&stop, model_calls) else {
            return Self { text, result: Ok(ExitStatus::Success) };
        };
        let failure = CliError::from(error);
        let (exit, hint) = match &stop {
            TurnStop::Limit(Limit::DeniedCalls) => (ExitStatus::Denied, None),
            TurnStop::Refused => {
                (ExitStatus::Refused, Some("the model's words above say why, if it gave a reason"))
            }
            TurnStop::Truncated(StopReason::MaxTokens) => (ExitStatus::Limit, Some("ask for less at once")),
            TurnStop::Truncated(StopReason::ContextWindowExceeded) => {
                (ExitStatus::Limit, Some("give less text; large data belongs into a file (`--file`)"))
            }
            TurnStop::Deadline => (ExitStatus::Limit, Some("raise `--timeout`")),
            TurnStop::Limit(_) => (ExitStatus::Limit, None),
            TurnStop::ModelFailed(_) => (failure.exit, None),
            _ => (ExitStatus::Failed, None),
        };
        let failure =
            CliError { exit, hint: hint.map(str::to_owned).or(failure.hint), message: failure.message };
        let is_partial = matches!(stop, TurnStop::Truncated(_) | TurnStop::Refused);
        let text = if is_partial { text } else { String::new() };
        Self { text, result: Err(failure) }
    }

    /// A result without a response.
    pub(crate) const fn failed(failure: CliError) -> Self {
        Self { text: String::new(), result: Err(failure) }
    }

    /// The exit status, or the error if there is no complete response.
    pub(crate) fn into_result(self) -> Result<ExitStatus, CliError> {
        self.result
    }

    /// The reader closed standard output, so nothing more is printed.
    const fn output_closed() -> Self {
        Self { text: String::new(), result: Ok(ExitStatus::Failed) }
    }

    /// Prints the response unless the printed events contain it. Returns the exit status or the error. An incomplete response goes to
    /// standard error.
    pub(crate) fn print(self, as_events: bool, terminal: &Terminal) -> Result<ExitStatus, CliError> {
        if self.result.is_err() && !self.text.is_empty() {
            terminal.note(&self.text);
        } else if matches!(self.result, Ok(ExitStatus::Success)) && !as_events {
            if self.text.trim().is_empty() {
                terminal.warning("the model's last answer holds no text");
            } else {
                terminal.output(&self.text);
            }
        }
        // A response that was not read is not a success.
        match self.result {
            Ok(ExitStatus::Success) if terminal.output_is_closed() => Ok(ExitStatus::Failed),
            result => result,
        }
    }
}

/// The error for a call that awaits approval.
fn awaiting_approval(call: &ToolCall) -> CliError {
    let told = format!("a call of `{}` waits for a person, and nobody decided", printable(&call.name));
    CliError::new(ExitStatus::AwaitingApproval, told)
}

/// The error for a call whose result the client must provide.
pub(crate) fn awaiting_result(call: &ToolCall) -> CliError {
    let told = format!(
        "a call of `{}` waits for its result from the application that opened the session",
        printable(&call.name)
    );
    let hint = "the command cannot provide results; use `Session::provide_result` in the application, or interrupt \
                the turn with a new message";
    CliError::new(ExitStatus::AwaitingApproval, told).with_hint(hint)
}

/// The error for a tool's questions without answers.
fn awaiting_input(input: &PendingInput) -> CliError {
    let told = format!("the MCP server `{}` asks a person, and nobody answered", printable(&input.asked_by));
    CliError::new(ExitStatus::AwaitingApproval, told)
}

/// The same error, with a hint how to answer later.
pub(crate) fn unanswered_error(host: &CommandRuntime, session: SessionId, input: &PendingInput) -> CliError {
    awaiting_input(input).with_hint(match host.persistence {
        Persistence::Persistent => {
            format!("`{}` at a terminal asks again", host.resume_command(session))
        }
        Persistence::Ephemeral => {
            "run it at a terminal, where it asks, or keep the session, so that it can be answered later"
                .to_owned()
        }
    })
}

/// The same error, with a hint how to decide later.
pub(crate) fn undecided_error(host: &CommandRuntime, session: SessionId, call: &ToolCall) -> CliError {
    awaiting_approval(call).with_hint(match host.persistence {
        Persistence::Persistent => host.decide_hint(session, &call.id),
        Persistence::Ephemeral => {
            "run it at a terminal, where it asks, or keep the session, so that it can be decided on later"
                .to_owned()
        }
    })
}

/// The error if `--timeout` passed before the model was called.
pub(crate) fn timeout_error() -> CliError {
    CliError::new(ExitStatus::Limit, "the deadline passed before the conversation began")
        .with_hint("raise `--timeout`")
}

#[cfg(test)]
mod tests {
    use conjure::conversation::{LoopOptions, PromptPrefix, TurnOutcome};
    use conjure::tool::{Authorization, CallConcurrency, CallTraits, Toolbox};
    use conjure::{
        Approver, Block, Message, Request, Response, ToolDefinition, ToolOutput, approver_fn, model_fn,
        tool_fn,
    };

    use super::*;

    /// The exit status of a conversation in which the model calls a tool again and again, under this policy.
    async fn exit_under(policy: impl Approver + 'static) -> ExitStatus {
        let definition = ToolDefinition {
            name: "knock".to_owned(),
            description: "Knocks.".to_owned(),
            input_schema: serde_json::json!({"type": "object"}),
        };
        let traits = CallTraits { concurrency: CallConcurrency::Shared, idempotent: true };
        let tool = tool_fn(definition, traits, |_, _| async { ToolOutput::text("knock") });
        let toolbox = Toolbox::builder().with_tool(tool).with_approver(policy).build().unwrap();
        let model = model_fn(|request: Request| async move {
            let input = serde_json::json!({"time": request.call});
            let call = Block::tool_use(format!("toolu_{}", request.call), "knock", &input);
            Ok(Response::new(vec![call], StopReason::ToolUse))
        });
        let messages = vec![Message::user(vec![Block::text("Go")])];
        let composer = PromptPrefix::default();
        let options = LoopOptions::default();
        let outcome =
            conjure_conversation::run_loop(messages, &model, &composer, &toolbox, options).await.unwrap();
        let end = match outcome.stop {
            TurnOutcome::Finished(stop) => TurnEnd::Stopped(stop),
            TurnOutcome::RequiresAction(waiting) => TurnEnd::AwaitingApproval(waiting[0].call.clone()),
        };
        RunResult::from_turn_end(&end, String::new(), 1, None).result.unwrap_err().exit
    }

    #[tokio::test]
    async fn a_denial_that_ends_the_run_has_its_own_code() {
        let deny = |_| async { Authorization::Deny { reason: "no".to_owned() } };
        assert_eq!(exit_under(approver_fn(deny)).await, ExitStatus::Denied);
        let ask = |_| async { Authorization::Ask { reason: "may it?".to_owned() } };
        assert_eq!(exit_under(approver_fn(ask)).await, ExitStatus::AwaitingApproval);
        let allow = |_| async { Authorization::Allow };
        assert_eq!(exit_under(approver_fn(allow)).await, ExitStatus::Limit);
    }
}
