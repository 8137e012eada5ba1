//! [`Decoder`]: reads the events of one streamed response.

use conjure_conversation::ModelEvent;

use crate::calls::service_error::ServiceError;
use crate::stream::sse::{SseError, SseEvent};

/// Reads the events of one streamed response. Its memory must be bounded by the bytes that it is given.
pub trait Decoder: Send {
    /// The complete response of this wire.
    type Answer: Send;

    /// Processes the next event and passes its previews to `show`. The client adds the cost to
    /// [`ModelEvent::UsageReported`]. [`ModelEvent::Started`] comes before the first output.
    ///
    /// # Errors
    /// When the event violates the protocol or reports an error of the service. The stream is over then.
    fn push(&mut self, event: SseEvent<'_>, show: &mut dyn FnMut(ModelEvent)) -> Result<(), StreamError>;

    /// Whether output was shown or a tool was started.
    fn shown(&self) -> OutputShown;

    /// Whether nothing more has to be read: `message_stop`, `[DONE]`, `response.completed`. Later events are not read.
    fn is_complete(&self) -> bool;

    /// Returns the response, or `None` if the stream ended before the response did. It is called once the response is complete, or at
    /// the end of the body.
    ///
    /// # Errors
    /// When the content is invalid.
    fn finish(self) -> Result<Option<Self::Answer>, StreamError>;
}

/// Whether output was shown or a tool was started. Then the call must not be repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OutputShown {
    /// No output yet.
    #[default]
    Nothing,
    /// A delta was emitted, or a tool was started, here or at the service.
    Something,
}

/// Why a stream is not a valid response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// It is not a server-sent event stream.
    #[error(transparent)]
    Sse(#[from] SseError),
    /// Its events violate the protocol.
    #[error("{0}")]
    Protocol(String),
    /// It has too many parts.
    #[error("the answer has more than {limit} {what}")]
    TooMany {
        /// The kind of parts.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The service reported an error in the stream.
    #[error("the service reported `{}` in mid-stream: {}", String::from(.0.kind.clone()), .0.message)]
    Service(Box<ServiceError>),
}

impl StreamError {
    /// The events violate the protocol in this way.
    #[must_use]
    pub fn protocol(reason: impl Into<String>) -> Self {
        Self::Protocol(reason.into())
    }
}

impl From<ServiceError> for StreamError {
    fn from(error: ServiceError) -> Self {
        Self::Service(Box::new(error))
    }
}
