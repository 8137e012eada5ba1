//! [`Reply`]: the reply to one request: an answer, an error, or deliberately invalid bytes.

use conjure_conversation::Usage;
use conjure_model_http::fake::{Ending, FakeReply};
use serde_json::Value;

use super::answer_writer::{FakeAnswer, Finish};
use super::refusal::Refusal;

/// One reply.
#[derive(Debug, Clone)]
pub struct Reply(FakeReply<FakeAnswer, Refusal>);

conjure_model_http::reply_methods!(Reply, FakeAnswer, Refusal);

impl Reply {
    /// Creates an answer of these parts with this `finishReason`. Each part is one piece of the stream. A valid signature replaces the
    /// value of each `thoughtSignature`.
    #[must_use]
    pub fn parts(parts: impl IntoIterator<Item = Value>, finish_reason: impl Into<String>) -> Self {
        let usage = Usage { input_tokens: 10, output_tokens: 10, ..Usage::default() };
        let finish = Finish::Reason(finish_reason.into());
        Self(FakeReply::answer(FakeAnswer::from_parts(parts.into_iter().collect(), finish, usage)))
    }

    /// Creates a reply without an answer, because the prompt is blocked for this reason.
    #[must_use]
    pub fn blocked(reason: impl Into<String>) -> Self {
        let usage = Usage { input_tokens: 10, ..Usage::default() };
        Self(FakeReply::answer(FakeAnswer::from_parts(Vec::new(), Finish::Blocked(reason.into()), usage)))
    }

    /// Closes the connection after this many pieces of the streamed answer.
    #[must_use]
    pub fn cut_after_pieces(mut self, after: usize) -> Self {
        self.0.end_with(Ending::Cut { after });
        self
    }

    /// Ends the streamed answer with an error after this many pieces.
    #[must_use]
    pub fn error_after_pieces(mut self, after: usize, error: Refusal) -> Self {
        self.0.end_with(Ending::Broken { after, error });
        self
    }
}
