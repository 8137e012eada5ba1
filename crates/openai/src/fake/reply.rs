//! [`Reply`]: the reply to one request: an answer, an error, or deliberately invalid bytes.

use conjure_model_http::fake::{Ending, FakeReply};

use super::answer::FakeAnswer;
use super::error::FakeError;

/// One reply.
#[derive(Debug, Clone)]
pub struct Reply(FakeReply<FakeAnswer, FakeError>);

conjure_model_http::reply_methods!(Reply, FakeAnswer, FakeError);

impl Reply {
    /// Leaves out the usage of the answer.
    #[must_use]
    pub fn without_usage(mut self) -> Self {
        if let Some(answer) = self.0.answer_mut() {
            answer.reports_usage = false;
        }
        self
    }

    /// Closes the connection after this many events of the streamed answer.
    #[must_use]
    pub fn cut_after_events(mut self, after: usize) -> Self {
        self.0.end_with(Ending::Cut { after });
        self
    }

    /// Ends the streamed answer with an error after this many events.
    #[must_use]
    pub fn error_after_events(mut self, after: usize, error: FakeError) -> Self {
        self.0.end_with(Ending::Broken { after, error });
        self
    }
}
