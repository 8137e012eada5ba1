//! The conversation functions of the specification (5.1, 5.10, 10, 11) over a [`Workbench`].
//!
//! Stateless: what a conversation is stands in the messages that go in and come out. Failures of tools are results
//! that the model reads, never errors.

use conjure_conversation::{
    AfterAnswer, Limit, Limits, LoopOptions, LoopOutcome, Message, Model, Response, ToolCall, ToolResult,
    TurnOutcome, TurnStop, extract_tool_uses,
};

use crate::config::Config;
use crate::error::Error;
use crate::workbench::Workbench;

/// What an answer of the model leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum Processed {
    /// The model is done. This is its text.
    Done(String),
    /// Tools ran. Send the answer and, in one message, these results (see
    /// [`format_tool_results_message`](crate::format_tool_results_message)).
    Continue(Vec<ToolResult>),
    /// The service paused: send the answer back as it is, without another message.
    Resume,
    /// The answer was cut or refused; its tools did not run. This is what there is of its text. Who goes on talking
    /// leaves its tool calls out of the history, or answers each with an error first.
    Stopped(String),
}

/// Runs one tool call (specification 5.1). What goes wrong is told in the result, under the call's id.
pub async fn execute(call: &ToolCall, workbench: &Workbench) -> ToolResult {
    workbench.execute(call).await
}

/// Runs the calls of one answer: in parallel where they do not disturb each other, results in call order
/// (specification 5.10). Each call has its own timeout.
pub async fn execute_tool_calls(calls: &[ToolCall], workbench: &Workbench) -> Vec<ToolResult> {
    workbench.execute_all(calls).await
}

/// Does what an answer asks for (specification 5.10): runs its tools, or says that the conversation is over.
pub async fn process_response(response: &Response, workbench: &Workbench) -> Processed {
    let text = || Message::assistant(response.content.clone()).text();
    let calls = extract_tool_uses(response);
    match response.stop_reason.consequence() {
        AfterAnswer::Stop => Processed::Done(text()),
        AfterAnswer::StopWithoutTools => Processed::Stopped(text()),
        // Also those of a pause: the service refuses an answer that comes back with a call that has no result.
        AfterAnswer::RunTools | AfterAnswer::Resume if !calls.is_empty() => {
            Processed::Continue(execute_tool_calls(&calls, workbench).await)
        }
        AfterAnswer::Resume => Processed::Resume,
        AfterAnswer::RunTools => Processed::Done(text()),
    }
}

/// The bounds that a configuration sets for a conversation.
#[must_use]
pub fn loop_options(config: &Config) -> LoopOptions {
    let limits = Limits { model_calls: config.max_iterations(), ..Limits::default() };
    LoopOptions { limits, compaction: config.compaction().map(Into::into), ..LoopOptions::default() }
}

/// Runs a conversation to its end (specification 5.10, 11): calls the model, runs its tools, and goes on until it is
/// done, a limit is reached or it fails. `messages` end with the user's.
///
/// The model is any [`Model`]; a host with a client of its own gives it as a callback with
/// [`model_fn`](crate::model_fn).
///
/// ```
/// use conjure::{
///     Block, Config, ContextOptions, Environment, ExecutorKind, Message, Request, Settings, Workbench, final_text,
///     loop_options, model_fn, parse_response, run_loop,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let settings = Settings { executor: Some(ExecutorKind::Local), ..Settings::default() };
/// let config = Config::layered(settings, &Environment::of_process(), None)?;
/// let skills = conjure::load("fixtures/skills")?.skills;
/// let workbench = Workbench::open(skills, &config, ContextOptions::default()).await?;
///
/// // Where the host's own client would send the request. This one says two things, whatever it is asked.
/// let model = model_fn(|request: Request| async move {
///     let body = match request.call {
///         1 => r#"{"stop_reason": "tool_use", "content": [{"type": "tool_use", "id": "toolu_1", "name": "bash_tool",
///                  "input": {"command": "echo $((6 * 7))", "description": "Multiply"}}]}"#,
///         _ => r#"{"stop_reason": "end_turn", "content": [{"type": "text", "text": "It is 42."}]}"#,
///     };
///     Ok(parse_response(body).expect("an answer"))
/// });
/// let question = Message::user(vec![Block::text("What is six times seven?")]);
/// let outcome = run_loop(vec![question], &workbench, "Be brief.", &model, loop_options(&config)).await?;
///
/// assert_eq!(final_text(&outcome)?, "It is 42.");
/// // The question, the call, its real result, the answer.
/// assert_eq!(outcome.messages.len(), 4);
/// assert!(outcome.messages[2].content[0].json().contains("42"));
/// workbench.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the messages are not a valid request. How a conversation ended otherwise, well or not, is in the outcome,
/// together with its messages; [`final_text`] makes the specification's errors of it.
pub async fn run_loop(
    messages: Vec<Message>,
    workbench: &Workbench,
    base_prompt: &str,
    model: &dyn Model,
    options: LoopOptions,
) -> Result<LoopOutcome, Error> {
    let composer = workbench.composer(base_prompt);
    let toolbox = workbench.toolbox();
    Ok(conjure_conversation::run_loop(messages, model, &composer, toolbox, options).await?)
}

/// The text of the last answer, when the conversation ended with one.
///
/// # Errors
/// When it ended otherwise, as [`stop_error`] says.
pub fn final_text(outcome: &LoopOutcome) -> Result<String, Error> {
    match &outcome.stop {
        TurnOutcome::RequiresAction(_) => Err(failed("a tool call waits for a person's approval")),
        TurnOutcome::Finished(stop) => {
            let turn = outcome.conversation.state().last_turn();
            stop_error(stop, turn.map_or(0, |turn| turn.model_calls)).map_or_else(|| Ok(outcome.text()), Err)
        }
    }
}

/// What a turn's end is, in the specification's errors (12.1): none, where the model answered. `model_calls`: how often the
/// model was called in it.
///
/// `MaxIterationsReached`, `ApiError`, `ExecutionTimeout`; `ExecutionFailed` for what the specification has no kind for, such
/// as a refusal or another limit.
#[must_use]
pub fn stop_error(stop: &TurnStop, model_calls: u32) -> Option<Error> {
    Some(match stop {
        TurnStop::Answered(_) => return None,
        TurnStop::ModelFailed(error) => Error::Api(error.clone()),
        TurnStop::Limit(Limit::ModelCalls) => Error::MaxIterationsReached { iterations: model_calls },
        TurnStop::Deadline | TurnStop::Limit(Limit::WallClock) => {
            Error::ExecutionTimeout { reason: format!("the conversation took too long: {stop}") }
        }
        other => failed(&other.to_string()),
    })
}

fn failed(reason: &str) -> Error {
    Error::ExecutionFailed {
        command: "the conversation".to_owned(),
        exit_code: None,
        output: String::new(),
        reason: reason.to_owned(),
    }
}
