//! The loop that resumes an answer which the service paused, over any client: no session, no state.
//!
//! A session does the same by its stop table, with a record; this is for a host that has a client and a history of its
//! own. Nothing is kept here: a run that is dropped, or lost in a crash, is over.

use conjure_base::ContainerId;
use serde_json::{Value, json};

use crate::hosted::{FileId, extract_file_ids, with_container_id};

/// How many calls a run makes at most while they all pause, unless the host says otherwise.
pub const MOST_PAUSES: u32 = 10;

/// Told of each pause: the answer, which names its container, and the number of the attempt, from 1.
pub type OnPause<'a> = Box<dyn FnMut(&Value, u32) + Send + 'a>;

/// How a run goes on.
#[derive(Default)]
pub struct RunOptions<'a> {
    maximum: Option<u32>,
    on_pause: Option<OnPause<'a>>,
}

impl std::fmt::Debug for RunOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunOptions").field("maximum", &self.maximum).finish_non_exhaustive()
    }
}

impl<'a> RunOptions<'a> {
    /// At most [`MOST_PAUSES`] calls, and nobody is told of a pause.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// At most so many calls; none at all with 0.
    #[must_use]
    pub const fn with_maximum(mut self, maximum: u32) -> Self {
        self.maximum = Some(maximum);
        self
    }

    /// Tells of each pause before the next call. The answer that it is given names the container, also where the service
    /// did not name it again.
    #[must_use]
    pub fn on_pause(mut self, tell: impl FnMut(&Value, u32) + Send + 'a) -> Self {
        self.on_pause = Some(Box::new(tell));
        self
    }
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The last answer, as the client gave it.
    pub response: Value,
    /// The history with all that was answered behind it, for the next message of the user's.
    pub messages: Vec<Value>,
    /// The container, for the next run.
    pub container: Option<ContainerId>,
    /// The files that were made, of all answers: those of a paused one are not in the last.
    pub files: Vec<FileId>,
    /// How many calls were made.
    pub attempts: u32,
}

/// How far a run came that did not end.
#[derive(Debug, Clone, PartialEq)]
pub struct Paused {
    /// The history with all that was answered so far: a run of it goes on where this one stopped.
    pub messages: Vec<Value>,
    /// The `container` for that run.
    pub container: Value,
    /// The files that were made so far.
    pub files: Vec<FileId>,
}

/// Why a run has no last answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The answer paused again and again.
    #[error(
        "the answer paused in {attempts} calls of at most {maximum}; raise the maximum, or run what is there again"
    )]
    MaximumExceeded {
        /// How many calls were made.
        attempts: u32,
        /// How many might be.
        maximum: u32,
        /// How far it came.
        paused: Box<Paused>,
    },
    /// The client failed.
    #[error("call {attempt} failed: {error}")]
    Call {
        /// Which call, from 1.
        attempt: u32,
        /// Why.
        error: E,
        /// How far it came.
        paused: Box<Paused>,
    },
    /// What the client gave is not an answer of the Messages API.
    #[error("call {attempt} did not give a message: its `content` is not a list of blocks")]
    NotAMessage {
        /// Which call, from 1.
        attempt: u32,
        /// How far it came.
        paused: Box<Paused>,
    },
}

/// Calls until the answer is whole: while it stops with `pause_turn` (or `compaction`), it is put behind the history
/// unchanged and the call is made again, in the same container.
///
/// `call` is given the messages and the `container` of the request and gives the answer, both as the JSON of the Messages
/// API; the tools, betas and all else are its own and must stay the same. `container` is what [`container_config`] makes,
/// with [`with_container_id`] where there is a container already.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use conjure_anthropic::hosted::{HostedSkill, RunOptions, container_config, run};
/// use serde_json::json;
///
/// let container = container_config(&[HostedSkill::anthropic("xlsx")])?;
/// let messages = vec![json!({"role": "user", "content": "Make a table."})];
/// let run = run(messages, container, RunOptions::new(), async |messages, container| {
///     // Here the host's own client posts both.
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
/// [`RunError`], which says how far the run came.
///
/// [`container_config`]: crate::hosted::container_config
pub async fn run<E>(
    messages: Vec<Value>,
    container: Value,
    options: RunOptions<'_>,
    mut call: impl AsyncFnMut(Vec<Value>, Value) -> Result<Value, E>,
) -> Result<Run, RunError<E>> {
    let RunOptions { maximum, mut on_pause } = options;
    let maximum = maximum.unwrap_or(MOST_PAUSES);
    let mut so_far = Paused { messages, container, files: Vec::new() };
    let mut is_resumed = false;
    for attempt in 1..=maximum {
        let mut response = match call(so_far.messages.clone(), so_far.container.clone()).await {
            Ok(response) => response,
            Err(error) => return Err(RunError::Call { attempt, error, paused: Box::new(so_far) }),
        };
        let Some(content) = response["content"].as_array().cloned() else {
            return Err(RunError::NotAMessage { attempt, paused: Box::new(so_far) });
        };
        for file in extract_file_ids(&response) {
            if !so_far.files.contains(&file) {
                so_far.files.push(file);
            }
        }
        keep_container(&mut so_far.container, &mut response);
        append(&mut so_far.messages, content, is_resumed);
        is_resumed = true;
        if !matches!(response["stop_reason"].as_str(), Some("pause_turn" | "compaction")) {
            return Ok(Run {
                response,
                container: id_of(&so_far.container).map(ContainerId::new),
                messages: so_far.messages,
                files: so_far.files,
                attempts: attempt,
            });
        }
        if let Some(tell) = &mut on_pause {
            tell(&response, attempt);
        }
    }
    Err(RunError::MaximumExceeded { attempts: maximum, maximum, paused: Box::new(so_far) })
}

/// The container of the next request is the one of this answer; an answer that does not name it ran in the one before.
fn keep_container(container: &mut Value, response: &mut Value) {
    if let Some(id) = response.get("container").and_then(id_of).map(ContainerId::new) {
        *container = with_container_id(container.take(), &id);
    } else if let (Some(id), Some(fields)) = (id_of(container), response.as_object_mut()) {
        let id = json!({"id": id});
        fields.insert("container".to_owned(), id);
    }
}

/// The id that a `container` names, alone or with other fields.
fn id_of(container: &Value) -> Option<&str> {
    container.as_str().or_else(|| container["id"].as_str()).filter(|id| !id.is_empty())
}

/// Puts an answer behind the history. That of a resumed pause belongs to the answer before it: roles alternate.
fn append(messages: &mut Vec<Value>, content: Vec<Value>, is_resumed: bool) {
    let last = messages.last_mut().filter(|last| is_resumed && last["role"] == "assistant");
    if let Some(Value::Array(before)) = last.and_then(|last| last.get_mut("content")) {
        before.extend(content);
    } else if !content.is_empty() {
        // A message without content would make the service refuse the history.
        messages.push(json!({"role": "assistant", "content": content}));
    }
}

#[cfg(test)]
mod tests;
