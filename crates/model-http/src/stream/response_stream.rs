//! [`ResponseStream`]: reads a streamed response through a decoder.

use std::collections::VecDeque;
use std::time::Duration;

use conjure_base::Deadline;
use conjure_conversation::{ModelErrorKind, ModelEvent, Response};

use crate::calls::attempt_error::{AttemptError, RetryDecision};
use crate::calls::client_state::ClientState;
use crate::calls::http_call::HttpCall;
use crate::calls::wire::Wire;
use crate::connection::idle_timer::IdleTimer;
use crate::stream::decoder::{Decoder, OutputShown, StreamError};
use crate::stream::sse::SseParser;

/// How long to wait for the end of the body after the last event, so that the connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(20);
/// The maximum number of bytes that are read for that.
const MAX_DRAIN_BYTES: usize = 4 << 10;

/// A response that is being streamed.
pub(crate) struct ResponseStream<W: Wire> {
    response: reqwest::Response,
    timer: IdleTimer,
    pub(crate) request_id: Option<String>,
    parser: SseParser,
    /// The decoder; `None` once it is finished.
    decoder: Option<W::Decoder>,
    shown: OutputShown,
    received: usize,
}

impl<W: Wire> ResponseStream<W> {
    pub(crate) fn new(client: &ClientState, wire: &W, call: &HttpCall, response: reqwest::Response) -> Self {
        let transport = &client.transport;
        Self {
            request_id: transport.errors().request_id(response.headers(), wire.request_id_headers()),
            response,
            timer: IdleTimer::default(),
            parser: SseParser::new(transport.limits().event),
            decoder: Some(wire.decoder(call)),
            shown: OutputShown::Nothing,
            received: 0,
        }
    }

    /// Whether output was shown.
    pub(crate) const fn shown(&self) -> OutputShown {
        self.shown
    }

    /// Reads one chunk of the body.
    pub(crate) async fn step(
        &mut self,
        client: &ClientState,
        wire: &W,
        call: &HttpCall,
        deadline: Deadline,
        ready: &mut VecDeque<ModelEvent>,
    ) -> Result<Option<Response>, AttemptError> {
        let transport = &client.transport;
        if self.decoder.as_ref().is_none_or(Decoder::is_complete) {
            self.drain(client).await;
            return self.finish(client, wire, call).map(Some);
        }
        let Some(chunk) = transport.next_chunk(&mut self.response, &mut self.timer, deadline).await? else {
            return self.finish(client, wire, call).map(Some);
        };
        self.received = self.received.saturating_add(chunk.len());
        if self.received > transport.limits().total {
            return Err(transport.too_large());
        }
        let Some(decoder) = &mut self.decoder else { return Err(self.cut_off()) };
        let read = self.parser.push(&chunk, |event| {
            if decoder.is_complete() {
                return Ok(());
            }
            decoder.push(event, &mut |shown| ready.push_back(client.priced(shown, &call.model)))
        });
        self.shown = decoder.shown();
        read.map_err(|error: StreamError| transport.errors().stream(wire, call, error))?;
        Ok(None)
    }

    /// The error for a body that ends before the response does.
    fn cut_off(&self) -> AttemptError {
        let message = match self.received {
            0 => "the stream ended before any event of the response",
            _ => "the stream ended before the answer was complete",
        };
        AttemptError::new(ModelErrorKind::Truncated, message, RetryDecision::Retry)
    }

    /// Reads the end of the body, which should follow at once.
    async fn drain(&mut self, client: &ClientState) {
        let transport = &client.transport;
        let drained = transport.clock().deadline(DRAIN_TIMEOUT);
        let mut drained_bytes = 0;
        while let Ok(Some(chunk)) = transport.chunk(&mut self.response, drained).await {
            drained_bytes += chunk.len();
            if drained_bytes > MAX_DRAIN_BYTES {
                break;
            }
        }
    }

    fn finish(&mut self, client: &ClientState, wire: &W, call: &HttpCall) -> Result<Response, AttemptError> {
        let Some(decoder) = self.decoder.take() else { return Err(self.cut_off()) };
        let answer = decoder.finish();
        let answer = answer.map_err(|error| client.transport.errors().stream(wire, call, error))?;
        let mut answer = answer.ok_or_else(|| self.cut_off())?;
        client.complete(&mut answer, self.request_id.clone(), &call.model);
        Ok(answer)
    }
}
