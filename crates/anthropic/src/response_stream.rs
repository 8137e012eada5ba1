//! [`ResponseStream`]: reads a streamed response and accumulates its message.

use std::collections::VecDeque;
use std::time::Duration;

use conjure_base::Deadline;
use conjure_conversation::{ModelErrorKind, ModelEvent};
use reqwest::Response;

use crate::api_response::ApiResponse;
use crate::attempt_error::{AttemptError, RetryDecision};
use crate::message_accumulator::{MessageAccumulator, StreamError};
use crate::messages::MessagesInner;
use crate::sse::SseParser;

/// How long to wait for the end of the body after `message_stop`, so that the connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(20);
/// The most bytes that are read for that.
const MAX_DRAIN_BYTES: usize = 4 << 10;

/// A response that is being streamed.
pub(crate) struct ResponseStream {
    response: Response,
    pub(crate) request_id: Option<String>,
    parser: SseParser,
    pub(crate) accumulator: MessageAccumulator,
    received: usize,
}

impl ResponseStream {
    pub(crate) fn new(inner: &MessagesInner, response: Response) -> Self {
        let transport = &inner.shared.transport;
        Self {
            request_id: transport.errors.request_id(response.headers()),
            response,
            parser: SseParser::new(transport.limits.event),
            accumulator: MessageAccumulator::new(),
            received: 0,
        }
    }

    /// Reads one chunk of the body.
    pub(crate) async fn step(
        &mut self,
        inner: &MessagesInner,
        deadline: Deadline,
        container: Option<&str>,
        ready: &mut VecDeque<ModelEvent>,
    ) -> Result<Option<ApiResponse>, AttemptError> {
        let transport = &inner.shared.transport;
        if self.accumulator.is_stopped() {
            return self.finish(inner).await;
        }
        let Some(chunk) = transport.chunk(&mut self.response, deadline).await? else {
            return Err(self.cut_off());
        };
        self.received = self.received.saturating_add(chunk.len());
        if self.received > transport.limits.total {
            return Err(transport.too_large());
        }
        let accumulator = &mut self.accumulator;
        self.parser
            .push(&chunk, |event| accumulator.push(event, |shown| ready.push_back(inner.priced(shown))))
            .map_err(|error: StreamError| transport.errors.stream(error, container))?;
        Ok(None)
    }

    /// The error for a body that ends before the response does.
    fn cut_off(&self) -> AttemptError {
        let message = match self.received {
            0 => "the stream ended before any event of the response",
            _ => "the stream ended before the answer was complete (no `message_stop`)",
        };
        AttemptError::new(ModelErrorKind::Truncated, message, RetryDecision::Retry)
    }

    async fn finish(&mut self, inner: &MessagesInner) -> Result<Option<ApiResponse>, AttemptError> {
        let transport = &inner.shared.transport;
        let drained = transport.clock.deadline(DRAIN_TIMEOUT);
        let mut drained_bytes = 0;
        while let Ok(Some(chunk)) = transport.chunk(&mut self.response, drained).await {
            drained_bytes += chunk.len();
            if drained_bytes > MAX_DRAIN_BYTES {
                break;
            }
        }
        let answer = std::mem::take(&mut self.accumulator).finish();
        let mut answer =
            answer.map_err(|error| transport.errors.stream(error, None))?.ok_or_else(|| self.cut_off())?;
        inner.complete(&mut answer, self.request_id.clone());
        Ok(Some(answer))
    }
}
