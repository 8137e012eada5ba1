//! [`Reply`]: the reply to one request: a response, an error, or deliberately invalid bytes.

use conjure_conversation::ModelEvent;
use conjure_model_http::fake::{Ending, FakeReply};
use serde_json::Value;

use super::refusal::Refusal;
use super::response_writer::{FakeResponse, ProducedFile};

/// One reply.
#[derive(Debug, Clone)]
pub struct Reply(FakeReply<FakeResponse, Refusal>);

conjure_model_http::reply_methods!(Reply, FakeResponse, Refusal);

impl Reply {
    /// Sets the `container` of the answer.
    #[must_use]
    pub fn with_container(mut self, container: Value) -> Self {
        if let Some(answer) = self.0.answer_mut() {
            answer.container = Some(container);
        }
        self
    }

    /// Closes the connection after this many pieces of the streamed answer.
    #[must_use]
    pub fn cut_after_pieces(mut self, after: usize) -> Self {
        self.0.end_with(Ending::Cut { after });
        self
    }

    /// Ends the streamed answer with an `error` event after this many pieces.
    #[must_use]
    pub fn error_after_pieces(mut self, after: usize, error: Refusal) -> Self {
        self.0.end_with(Ending::Broken { after, error });
        self
    }

    /// Stops the JSON of the last call's input after this many of its pieces, as a response does that reaches `max_tokens` there.
    #[must_use]
    pub fn with_unfinished_input(mut self, pieces: usize) -> Self {
        if let Some(answer) = self.0.answer_mut() {
            let call = answer.response.content.iter().rposition(|block| block.tool_call().is_some());
            let mut delta_count = 0;
            answer.deltas.retain(|delta| {
                let is_input_delta =
                    matches!(delta, ModelEvent::ToolInputDelta { index, .. } if Some(*index) == call);
                delta_count += usize::from(is_input_delta);
                !is_input_delta || delta_count <= pieces
            });
        }
        self
    }

    /// Sets the `request-id` of the reply.
    #[must_use]
    pub fn with_request_id(mut self, id: impl Into<String>) -> Self {
        self.0.request_id = Some(id.into());
        self
    }

    /// Sets the files that the answer produces when it is played.
    pub(super) fn producing(mut self, produced: Vec<ProducedFile>) -> Self {
        if let Some(answer) = self.0.answer_mut() {
            answer.produced = produced;
        }
        self
    }
}
