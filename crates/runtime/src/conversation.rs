//! The conversation functions of the specification (5.1, 5.10, 10, 11) over a [`Workbench`].
//!
//! The functions are stateless: the messages that the caller passes in and gets back are the conversation. A failure of a
//! tool is a result that the model reads, never an error.

use conjure_conversation::{
    AfterResponse, Limit, Limits, LoopOptions, LoopOutcome, Message, Model, Response, ToolCall, ToolResult,
    TurnOutcome, TurnStop, extract_tool_uses,
};

use crate::config::Config;
use crate::error::Error;
use crate::workbench::Workbench;

/// What the caller must do after a response of the model.
#[derive(Debug, Clone, PartialEq)]
pub enum ProcessedResponse {
    /// The model has finished. This is its text.
    Done(String),
    /// Tools ran. Send the response and these results in one message (see
    /// [`format_tool_results_message`](conjure_conversation::format_tool_results_message)).
    Continue(Vec<ToolResult>),
    /// The service paused: send the response back as it is, without another message.
    Resume,
    /// The response was truncated or refused, and its tools did not run. This is its text. To continue, remove its tool
    /// calls from the history, or answer each with an error first.
    Stopped(String),
}

/// Runs one tool call (specification 5.1). Errors are reported in the result, under the call's id.
pub async fn execute(call: &ToolCall, workbench: &Workbench) -> ToolResult {
    workbench.execute(call).await
}

/// Runs the calls of one response (specification 5.10). Independent calls run in parallel. The results are in call order.
/// Each call has its own timeout.
pub async fn execute_tool_calls(calls: &[ToolCall], workbench: &Workbench) -> Vec<ToolResult> {
    workbench.execute_all(calls).await
}

/// Processes a response (specification 5.10): runs its tools, or says that the conversation has ended.
pub async fn process_response(response: &Response, workbench: &Workbench) -> ProcessedResponse {
    let text = || Message::assistant(response.content.clone()).text();
    let calls = extract_tool_uses(response);
    match response.stop_reason.after_response() {
        AfterResponse::Stop => ProcessedResponse::Done(text()),
        AfterResponse::StopWithoutTools => ProcessedResponse::Stopped(text()),
        // This includes the calls of a paused response. The service refuses a response that is sent back with a call
        // without a result.
        AfterResponse::RunTools | AfterResponse::Resume if !calls.is_empty() => {
            ProcessedResponse::Continue(execute_tool_calls(&calls, workbench).await)
        }
        AfterResponse::Resume => ProcessedResponse::Resume,
        AfterResponse::RunTools => ProcessedResponse::Done(text()),
    }
}

/// The limits of a conversation, from the configuration.
#[must_use]
pub fn loop_options(config: &Config) -> LoopOptions {
    let limits = Limits { model_calls: config.max_iterations(), ..Limits::default() };
    LoopOptions { limits, compaction: config.compaction().map(Into::into), ..LoopOptions::default() }
}

/// Runs a conversation to its end (specification 5.10, 11): calls the model and runs its tools. It ends when the model is
/// done, a limit is reached or the conversation fails. The last of `messages` must be the user's.
///
/// The model is any [`Model`]. An embedder with a client of its own makes it a model with
/// [`model_fn`](conjure_conversation::model_fn).
///
/// ```
/// use conjure::{
///     Block, Config, Message, ProcessEnv, Request, Response, Settings, StopReason, Workbench, model_fn, run_loop,
/// };
/// use conjure::config::ExecutorKind;
/// use conjure::conversation::{final_text, loop_options};
/// use conjure::session::ContextOptions;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let settings = Settings { executor: Some(ExecutorKind::Local), ..Settings::default() };
/// let config = Config::from_layers(settings, &ProcessEnv::from_process(), None)?;
/// let skills = conjure::load("../../fixtures/skills")?.skills;
/// let workbench = Workbench::open(skills, &config, ContextOptions::default()).await?;
///
/// // Your client would send the request here. This one has two fixed responses.
/// let model = model_fn(|request: Request| async move {
///     let input = json!({"command": "echo $((6 * 7))", "description": "Multiply"});
///     Ok(match request.call {
///         1 => Response::new(vec![Block::tool_use("toolu_1", "bash_tool", &input)], StopReason::ToolUse),
///         _ => Response::text("It is 42."),
///     })
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
/// If the messages are not a valid request. In every other case the outcome says how the conversation ended, and contains
/// its messages. [`final_text`] converts the outcome to the specification's errors.
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

/// The text of the last response, if the conversation ended with one.
///
/// # Errors
///
/// If it ended otherwise. [`stop_error`] says which error that is.
pub fn final_text(outcome: &LoopOutcome) -> Result<String, Error> {
    match &outcome.stop {
        TurnOutcome::RequiresAction(_) => Err(loop_failed("a tool call waits for a person's approval")),
        TurnOutcome::Finished(stop) => {
            let turn = outcome.conversation.state().last_turn();
            stop_error(stop, turn.map_or(0, |turn| turn.model_calls)).map_or_else(|| Ok(outcome.text()), Err)
        }
    }
}

/// The specification's error (12.1) for the end of a turn; `None` if the model finished. `model_calls` is the number of
/// model calls in the turn.
///
/// It is `MaxIterationsReached`, `ApiError` or `ExecutionTimeout`. If the specification has no such kind, it is
/// `ExecutionFailed`; examples are a refusal and other limits.
#[must_use]
pub fn stop_error(stop: &TurnStop, model_calls: u32) -> Option<Error> {
    Some(match stop {
        TurnStop::Answered(_) => return None,
        TurnStop::ModelFailed(error) => Error::Api(error.clone()),
        TurnStop::Limit(Limit::ModelCalls) => Error::MaxIterationsReached { iterations: model_calls },
        TurnStop::Deadline | TurnStop::Limit(Limit::WallClock) => {
            Error::ExecutionTimeout { reason: format!("the conversation took too long: {stop}") }
        }
        other => loop_failed(&other.to_string()),
    })
}

fn loop_failed(reason: &str) -> Error {
    Error::ExecutionFailed {
        command: "the conversation".to_owned(),
        exit_code: None,
        output: String::new(),
        reason: reason.to_owned(),
    }
}
