//! The loop that resumes a paused response until it is complete, with any client.
//!
//! A session does the same and records it. This loop is for an embedder with its own client and history. It stores nothing, so a dropped
//! run is lost.

use conjure_base::ContainerId;
use serde_json::{Value, json};

use crate::hosted::{FileId, extract_file_ids, with_container_id};

/// The default maximum number of calls in a run.
pub const MAX_PAUSES: u32 = 10;

/// A callback for each pause. It gets the response, which names its container, and the number of the call, from 1.
pub type OnPause<'a> = Box<dyn FnMut(&Value, u32) + Send + 'a>;

/// The options of a run.
#[derive(Default)]
pub struct ResumeOptions<'a> {
    maximum: Option<u32>,
    on_pause: Option<OnPause<'a>>,
}

impl std::fmt::Debug for ResumeOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResumeOptions").field("maximum", &self.maximum).finish_non_exhaustive()
    }
}

impl<'a> ResumeOptions<'a> {
    /// Creates options for at most [`MAX_PAUSES`] calls, without a callback.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of calls; 0 makes no call.
    #[must_use]
    pub const fn with_maximum(mut self, maximum: u32) -> Self {
        self.maximum = Some(maximum);
        self
    }

    /// Sets a callback that is called at each pause, before the next call. Its response always names the container.
    #[must_use]
    pub fn on_pause(mut self, callback: impl FnMut(&Value, u32) + Send + 'a) -> Self {
        self.on_pause = Some(Box::new(callback));
        self
    }
}

/// The result of a complete run.
#[derive(Debug, Clone, PartialEq)]
pub struct ResumedResponse {
    /// The last response, as the client returned it.
    pub response: Value,
    /// The history with all responses appended, for the next user message.
    pub messages: Vec<Value>,
    /// The container, which the next run can reuse.
    pub container: Option<ContainerId>,
    /// The produced files of all responses, including the paused ones.
    pub files: Vec<FileId>,
    /// The number of calls.
    pub attempts: u32,
}

/// The state of an incomplete run.
#[derive(Debug, Clone, PartialEq)]
pub struct UnfinishedRun {
    /// The history with all responses so far. A new run with it resumes here.
    pub messages: Vec<Value>,
    /// The `container` for the new run.
    pub container: Value,
    /// The files produced so far.
    pub files: Vec<FileId>,
}

/// Why a run is incomplete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError<E> {
    /// The response paused too often.
    #[error(
        "there is no complete response after {attempts} calls of at most {maximum}; raise the maximum, or start a new run with the history so far"
    )]
    MaximumExceeded {
        /// The number of calls.
        attempts: u32,
        /// The maximum number of calls.
        maximum: u32,
        /// The state of the run so far.
        paused: Box<UnfinishedRun>,
    },
    /// The client failed.
    #[error("call {attempt} failed: {error}")]
    Call {
        /// The number of the call, from 1.
        attempt: u32,
        /// The client's error.
        error: E,
        /// The state of the run so far.
        paused: Box<UnfinishedRun>,
    },
    /// The client did not return a response of the Messages API.
    #[error("call {attempt} did not return a message: its `content` is not a list of blocks")]
    NotAMessage {
        /// The number of the call, from 1.
        attempt: u32,
        /// The state of the run so far.
        paused: Box<UnfinishedRun>,
    },
}

/// Repeats a call until its response is complete. While a response stops with `pause_turn` or `compaction`, it is appended to the history
/// unchanged, and the call is repeated in the same container.
///
/// `call` gets the messages and the `container` of the request, and returns the response. All are JSON of the Messages API. The tools,
/// betas and other fields of the request must not change. `container` comes from [`container_config`], with [`with_container_id`] for an
/// existing container.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use conjure_anthropic::hosted::{HostedSkill, ResumeOptions, container_config, run_until_complete};
/// use serde_json::json;
///
/// let container = container_config(&[HostedSkill::anthropic("xlsx")])?;
/// let messages = vec![json!({"role": "user", "content": "Make a table."})];
/// let run = run_until_complete(messages, container, ResumeOptions::new(), async |messages, container| {
///     // Here the embedder's own client sends both.
///     assert_eq!((messages.len(), container["skills"][0]["skill_id"].as_str()), (1, Some("xlsx")));
///     let text = json!({"type": "text", "text": "Done."});
///     Ok::<_, std::io::Error>(json!({"content": [text], "stop_reason": "end_turn", "container": {"id": "c_1"}}))
/// })
/// .await?;
/// assert_eq!(run.messages.len(), 2);
/// assert_eq!(run.container.map(|id| id.to_string()).as_deref(), Some("c_1"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ResumeError`], which holds the state of the run so far.
///
/// [`container_config`]: crate::hosted::container_config
pub async fn run_until_complete<E>(
    messages: Vec<Value>,
    container: Value,
    options: ResumeOptions<'_>,
    mut call: impl AsyncFnMut(Vec<Value>, Value) -> Result<Value, E>,
) -> Result<ResumedResponse, ResumeError<E>> {
    let ResumeOptions { maximum, mut on_pause } = options;
    let maximum = maximum.unwrap_or(MAX_PAUSES);
    let mut run = UnfinishedRun { messages, container, files: Vec::new() };
    let mut is_resumed = false;
    for attempt in 1..=maximum {
        let mut response = match call(run.messages.clone(), run.container.clone()).await {
            Ok(response) => response,
            Err(error) => return Err(ResumeError::Call { attempt, error, paused: Box::new(run) }),
        };
        let Some(content) = response["content"].as_array().cloned() else {
            return Err(ResumeError::NotAMessage { attempt, paused: Box::new(run) });
        };
        for file in extract_file_ids(&response) {
            if !run.files.contains(&file) {
                run.files.push(file);
            }
        }
        with_container(&mut run.container, &mut response);
        append(&mut run.messages, content, is_resumed);
        is_resumed = true;
        if !matches!(response["stop_reason"].as_str(), Some("pause_turn" | "compaction")) {
            return Ok(ResumedResponse {
                response,
                container: container_id(&run.container).map(ContainerId::new),
                messages: run.messages,
                files: run.files,
                attempts: attempt,
            });
        }
        if let Some(callback) = &mut on_pause {
            callback(&response, attempt);
        }
    }
    Err(ResumeError::MaximumExceeded { attempts: maximum, maximum, paused: Box::new(run) })
}

/// Uses the container of this response for the next request. A response that names none ran in the previous container.
fn with_container(container: &mut Value, response: &mut Value) {
    if let Some(id) = response.get("container").and_then(container_id).map(ContainerId::new) {
        *container = with_container_id(container.take(), &id);
    } else if let (Some(id), Some(fields)) = (container_id(container), response.as_object_mut()) {
        let id = json!({"id": id});
        fields.insert("container".to_owned(), id);
    }
}

/// The id in a `container`, which is a string or an object.
fn container_id(container: &Value) -> Option<&str> {
    container.as_str().or_else(|| container["id"].as_str()).filter(|id| !id.is_empty())
}

/// Appends a response to the history. A resumed response extends the previous message, because roles must alternate.
fn append(messages: &mut Vec<Value>, content: Vec<Value>, is_resumed: bool) {
    let last = messages.last_mut().filter(|last| is_resumed && last["role"] == "assistant");
    if let Some(Value::Array(before)) = last.and_then(|last| last.get_mut("content")) {
        before.extend(content);
    } else if !content.is_empty() {
        // The service would refuse a history with an empty message.
        messages.push(json!({"role": "assistant", "content": content}));
    }
}

#[cfg(test)]
mod tests;
