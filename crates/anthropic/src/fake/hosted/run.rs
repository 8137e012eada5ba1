//! A scripted turn in which the service's model runs a command in its container.

use bytes::Bytes;
use conjure_conversation::{Block, Response, StopReason, Usage};
use serde_json::json;

use crate::fake::reply::Reply;
use crate::fake::response_writer::{CALL_PLACEHOLDER, ProducedFile};

/// One run of a command in the container. It becomes an answer with the call, its result and the produced files.
///
/// ```
/// use conjure_anthropic::fake::{FakeMessages, FakeToolRun, Reply};
///
/// let made = FakeToolRun::new("python make.py").with_stdout("ok\n").with_file("report.xlsx", "…").saying("Here it is.");
/// let turns = [Reply::from(FakeToolRun::new("sleep 60").paused()), Reply::from(made)];
/// let fake = FakeMessages::builder().hosting().turns(turns);
/// ```
#[derive(Debug, Clone)]
pub struct FakeToolRun {
    command: String,
    stdout: String,
    files: Vec<(String, Bytes)>,
    error: Option<String>,
    text: Option<String>,
    stop: StopReason,
}

impl FakeToolRun {
    /// A run of this shell command that prints nothing, produces no files and succeeds.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            stdout: String::new(),
            files: Vec::new(),
            error: None,
            text: None,
            stop: StopReason::EndTurn,
        }
    }

    /// Sets the standard output.
    #[must_use]
    pub fn with_stdout(mut self, text: impl Into<String>) -> Self {
        self.stdout = text.into();
        self
    }

    /// Adds a produced file. It can be downloaded under the id in the result.
    #[must_use]
    pub fn with_file(mut self, name: impl Into<String>, content: impl Into<Bytes>) -> Self {
        self.files.push((name.into(), content.into()));
        self
    }

    /// Makes the run fail with an error code: `unavailable`, `too_many_requests`, `execution_time_exceeded`, …
    #[must_use]
    pub fn failing(mut self, error_code: impl Into<String>) -> Self {
        self.error = Some(error_code.into());
        self
    }

    /// Adds a text that the model says after the run.
    #[must_use]
    pub fn saying(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Makes the answer pause after the run. The client has to request the rest.
    #[must_use]
    pub fn paused(mut self) -> Self {
        self.stop = StopReason::PauseTurn;
        self
    }
}

impl From<FakeToolRun> for Reply {
    fn from(run: FakeToolRun) -> Self {
        let produced: Vec<ProducedFile> = (run.files.into_iter().enumerate())
            .map(|(index, (name, content))| ProducedFile {
                placeholder: format!("{{{{file {index}}}}}"),
                name,
                content,
            })
            .collect();
        let outputs: Vec<_> = produced
            .iter()
            .map(|file| json!({"type": "bash_code_execution_output", "file_id": file.placeholder}))
            .collect();
        let content = match run.error {
            Some(code) => json!({"type": "bash_code_execution_tool_result_error", "error_code": code}),
            None => json!({
                "type": "bash_code_execution_result", "stdout": run.stdout, "stderr": "",
                "return_code": 0, "content": outputs,
            }),
        };
        let call = json!({
            "type": "server_tool_use", "id": CALL_PLACEHOLDER, "name": "bash_code_execution",
            "input": {"command": run.command}, "caller": {"type": "direct"},
        });
        let result = json!({"type": "bash_code_execution_tool_result", "tool_use_id": CALL_PLACEHOLDER, "content": content});
        let blocks = [call, result].into_iter().filter_map(|block| Block::from_json(block.to_string()).ok());
        let response = Response {
            content: blocks.chain(run.text.map(Block::text)).collect(),
            stop_reason: run.stop,
            usage: Usage { input_tokens: 10, output_tokens: 10, ..Usage::default() },
            ..Response::text("")
        };
        Self::answer(response).producing(produced)
    }
}
