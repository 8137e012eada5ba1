//! [`Decoder`]: reads the events of one streamed response.

use conjure_conversation::{ModelEvent, Response};

use crate::calls::service_error::ServiceError;
use crate::stream::sse::{SseError, SseEvent};

/// Reads the events of one streamed response. Its memory must be bounded by the bytes that the client passes to it.
pub trait Decoder: Send {
    /// Processes the next event and passes its previews to `emit`. It must emit [`ModelEvent::Started`] before the first output. The client
    /// adds the cost to [`ModelEvent::UsageReported`].
    ///
    /// # Errors
    /// If the event violates the protocol or reports an error of the service. The stream has ended then.
    fn push(&mut self, event: SseEvent<'_>, emit: &mut dyn FnMut(ModelEvent)) -> Result<(), StreamError>;

    /// Whether output was shown or a tool was started.
    fn shown(&self) -> OutputShown;

    /// Whether the response is complete, after `message_stop`, `[DONE]` or `response.completed`. Later events are not read.
    fn is_complete(&self) -> bool;

    /// Returns the response, or `None` if the stream ended before the response did. The client calls it once the response is complete, or
    /// at the end of the body.
    ///
    /// # Errors
    /// If the content is invalid.
    fn finish(self) -> Result<Option<Response>, StreamError>;
}

/// Whether output was shown or a tool was started. If so, the call must not be retried.
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
    /// The response has too many parts.
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
    /// Creates an error for events that violate the protocol.
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
