//! [`ModelCall`]: one model call, with admission, attempts and retries. It is not retried once output was shown.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conjure_base::Deadline;
use conjure_conversation::{
    ApiErrorKind, BlockKind, ModelError, ModelErrorKind, ModelEvent, Response, SideEffects,
};
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use tracing::{Instrument, Span};

use crate::calls::attempt_error::{AttemptError, PossibleEffects, RetryDecision, not_admitted};
use crate::calls::call_span::call_span;
use crate::calls::call_span::{record_error, record_response};
use crate::calls::client_state::ClientState;
use crate::calls::http_call::HttpCall;
use crate::calls::wire::Wire;
use crate::connection::limiter::{MAX_CLOSED, Permit, QueueTicket};
use crate::connection::retry_policy::{backoff, is_limit, retry_after};
use crate::stream::decoder::OutputShown;
use crate::stream::response_stream::ResponseStream;

/// A running model call.
pub(crate) struct ModelCall<W: Wire> {
    client: Arc<ClientState>,
    wire: Arc<W>,
    call: HttpCall,
    ticket: QueueTicket,
    deadline: Deadline,
    /// The number of failed attempts.
    failed_attempts: u32,
    /// The last attempt's error.
    last_error: Option<ModelError>,
    stage: CallStage,
    /// When the next attempt is due; `None` for now.
    due: Option<Deadline>,
    response: Option<ResponseStream<W>>,
    span: Span,
}

/// The stage of a call before its response arrives.
enum CallStage {
    /// Not started.
    New,
    /// Waiting for the backoff and for the rate limiter.
    Waiting,
    /// Admitted; the request is sent next.
    Admitted(Permit),
}

impl<W: Wire> ModelCall<W> {
    pub(crate) fn new(client: Arc<ClientState>, wire: Arc<W>, call: HttpCall) -> Self {
        Self {
            span: call_span(wire.provider(), client.transport.host(), &call),
            ticket: client.limiter.ticket(),
            deadline: client.transport.clock().deadline(client.transport.timeouts().total),
            failed_attempts: 0,
            last_error: None,
            stage: CallStage::New,
            due: None,
            response: None,
            client,
            wire,
            call,
        }
    }

    /// Runs until it has added events to `ready`, or until the response is complete.
    pub(crate) async fn next(
        &mut self,
        ready: &mut VecDeque<ModelEvent>,
    ) -> Result<Option<Response>, ModelError> {
        let span = self.span.clone();
        async {
            loop {
                let step = match &mut self.response {
                    Some(reading) => {
                        reading.step(&self.client, &*self.wire, &self.call, self.deadline, ready).await
                    }
                    None => self.advance(ready).await,
                };
                match step {
                    Ok(Some(response)) => {
                        record_response(&self.span, &response);
                        return Ok(Some(response));
                    }
                    Ok(None) if !ready.is_empty() => {
                        if self.shown() == OutputShown::Something {
                            // The call is never sent again, so its body can be freed.
                            self.call.body = Bytes::new();
                        }
                        return Ok(None);
                    }
                    Ok(None) => {}
                    Err(failure) => {
                        let reading = self.response.take();
                        self.recover(failure, reading.as_ref())?;
                        ready.push_back(ModelEvent::Queued);
                        return Ok(None);
                    }
                }
            }
        }
        .instrument(span)
        .await
    }

    /// Moves to the next stage. It emits `Waiting` and `Sent` events before the call waits or sends.
    async fn advance(&mut self, ready: &mut VecDeque<ModelEvent>) -> Result<Option<Response>, AttemptError> {
        let permit = match std::mem::replace(&mut self.stage, CallStage::Waiting) {
            CallStage::Admitted(permit) => {
                let response = self.attempt(permit).await?;
                if !is_event_stream(&response) {
                    let response = self.read_unstreamed(response).await?;
                    push_response_events(&response, ready);
                    return Ok(Some(response));
                }
                self.response = Some(ResponseStream::new(&self.client, &*self.wire, &self.call, response));
                return Ok(None);
            }
            CallStage::New => self.client.limiter.try_admit(),
            CallStage::Waiting => {
                self.pause().await;
                Some(self.wait_for_permit().await?)
            }
        };
        ready.push_back(match permit {
            Some(permit) => {
                self.stage = CallStage::Admitted(permit);
                ModelEvent::Sent
            }
            None => ModelEvent::Queued,
        });
        Ok(None)
    }

    /// Waits until the next attempt is due.
    async fn pause(&mut self) {
        if let Some(until) = self.due {
            self.client.transport.clock().sleep_until(until).await;
            self.due = None;
        }
    }

    fn shown(&self) -> OutputShown {
        self.response.as_ref().map_or(OutputShown::Nothing, ResponseStream::shown)
    }

    /// Reads a body that is a complete answer.
    async fn read_whole(&mut self, mut response: reqwest::Response) -> Result<Response, AttemptError> {
        let transport = &self.client.transport;
        let request_id = transport.errors().request_id(response.headers(), self.wire.request_id_headers());
        let body = transport.body(&mut response, self.deadline).await;
        let answer = body.and_then(|body| {
            let status = response.status().as_u16();
            // Errors are checked first, because a wire may read the body of an error as an empty answer.
            if let Some(error) = transport.errors().read_error(&*self.wire, status, response.headers(), &body)
            {
                return Err(transport.errors().successful_status(&*self.wire, &self.call, status, error));
            }
            self.wire.read_whole(&self.call, &body).map_err(|reason| {
                let what = format!("the service did not answer with a message ({reason})");
                transport.errors().unexpected_response(&what, self.wire.api_name(), &body)
            })
        });
        match answer {
            Ok(mut answer) => {
                self.client.complete(&mut answer, request_id, &self.call.model);
                Ok(answer)
            }
            Err(mut failure) => {
                failure.error.request_id = failure.error.request_id.or(request_id);
                Err(failure)
            }
        }
    }

    /// Reads a response that is not a stream although the request asked for one. Some services ignore that and answer with one JSON body.
    async fn read_unstreamed(&mut self, mut response: reqwest::Response) -> Result<Response, AttemptError> {
        let read = if is_json(&response) {
            self.read_whole(response).await
        } else {
            let transport = &self.client.transport;
            let body = transport.excerpt(&mut response, self.deadline).await;
            let mut failure =
                self.missing_response(&response, &body, "the service did not answer with a stream of events");
            let request_id =
                transport.errors().request_id(response.headers(), self.wire.request_id_headers());
            failure.error.request_id = failure.error.request_id.or(request_id);
            Err(failure)
        };
        if let Err(failure) = &read
            && failure.next == RetryDecision::RetryWhenAdmitted
        {
            self.close_gate(failure);
        }
        read
    }

    /// The error of a successful status without an answer: the error in the body, else that the body is unexpected.
    fn missing_response(&self, response: &reqwest::Response, body: &[u8], what: &str) -> AttemptError {
        let errors = self.client.transport.errors();
        let status = response.status().as_u16();
        match errors.read_error(&*self.wire, status, response.headers(), body) {
            Some(error) => errors.successful_status(&*self.wire, &self.call, status, error),
            None => errors.unexpected_response(what, self.wire.api_name(), body),
        }
    }

    /// Waits for a permit of the rate limiter for one attempt.
    async fn wait_for_permit(&mut self) -> Result<Permit, AttemptError> {
        let limiter = &self.client.limiter;
        limiter.admit(self.ticket, self.deadline).await.map_err(|refused| {
            let mut error = self.last_error.take().unwrap_or_else(|| not_admitted(refused.retry_after));
            // A `retry-after` above the gate's limit is still reported to the caller.
            let requested = error.retry_after.filter(|requested| *requested > MAX_CLOSED);
            error.retry_after =
                requested.or_else(|| (!refused.retry_after.is_zero()).then_some(refused.retry_after));
            AttemptError { error, next: RetryDecision::GiveUp, effects: PossibleEffects::None }
        })
    }

    /// Sends one attempt and returns the head of a successful response.
    async fn attempt(&mut self, permit: Permit) -> Result<reqwest::Response, AttemptError> {
        let client = &self.client;
        let transport = &client.transport;
        let mut request = transport
            .request(Method::POST, self.call.url.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(self.call.body.clone());
        if !self.call.headers.is_empty() {
            request = request.headers(self.call.headers.clone());
        }
        // Without a response, nothing is known about the limit. Dropping the permit releases it.
        let mut response = transport.head(request, transport.timeouts().idle, self.deadline).await?;
        let status = response.status().as_u16();
        if is_limit(status) {
            // The gate is closed before the body is read.
            let now = transport.clock().timestamp();
            let wait = retry_after(response.headers(), now)
                .unwrap_or_else(|| backoff(self.failed_attempts, client.jitter.next()));
            permit.report_limit(wait, client.jitter.next());
        } else {
            permit.report_response();
        }
        if !response.status().is_success() {
            let body = transport.excerpt(&mut response, self.deadline).await;
            let now = transport.clock().timestamp();
            let (headers, errors) = (response.headers(), transport.errors());
            let failure = errors.status(&*self.wire, &self.call, status, headers, &body, now);
            if is_limit(status)
                && retry_after(headers, now).is_none()
                && let Some(wait) = failure.error.retry_after
            {
                // The body says how long to wait.
                client.limiter.report_limit(wait, client.jitter.next());
            }
            return Err(failure);
        }
        Ok(response)
    }

    /// Makes all calls of the key wait after a rate limit or overload error that came with a successful status.
    fn close_gate(&self, failure: &AttemptError) {
        let (limiter, jitter) = (&self.client.limiter, &self.client.jitter);
        let wait = failure.error.retry_after;
        let wait = wait.unwrap_or_else(|| backoff(self.failed_attempts, jitter.next()));
        limiter.report_limit(wait, jitter.next());
    }

    /// Schedules the next attempt, or returns the final error.
    fn recover(
        &mut self,
        failure: AttemptError,
        reading: Option<&ResponseStream<W>>,
    ) -> Result<(), ModelError> {
        if reading.is_some() && failure.next == RetryDecision::RetryWhenAdmitted {
            // The gate is closed even if this call gives up.
            self.close_gate(&failure);
        }
        let AttemptError { mut error, next, effects: possible_effects } = failure;
        if let Some(reading) = reading {
            error.request_id = error.request_id.or_else(|| reading.request_id.clone());
        }
        let shown = reading.map_or(OutputShown::Nothing, ResponseStream::shown);
        if self.call.effects == SideEffects::Possible && possible_effects == PossibleEffects::Possible {
            return Err(self.final_error(unknown_outcome(error, shown)));
        }
        let client = &self.client;
        if next == RetryDecision::GiveUp
            || shown == OutputShown::Something
            || self.failed_attempts >= client.retries
        {
            return Err(self.final_error(error));
        }
        let clock = client.transport.clock();
        let wait = match next {
            RetryDecision::Retry => {
                error.retry_after.unwrap_or_else(|| backoff(self.failed_attempts, client.jitter.next()))
            }
            // The rate limiter makes the next attempt wait, or there is none.
            RetryDecision::RetryWhenAdmitted | RetryDecision::GiveUp => Duration::ZERO,
        };
        if wait >= clock.remaining(self.deadline) {
            // The wait would end in a timeout, which would be a less useful error.
            return Err(self.final_error(error));
        }
        tracing::debug!(
            attempt = self.failed_attempts + 1,
            wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            request_id = error.request_id.as_deref(),
            "the model call failed and is retried: {error}"
        );
        self.due = Some(clock.deadline(wait));
        self.failed_attempts += 1;
        self.last_error = Some(error);
        Ok(())
    }

    fn final_error(&self, error: ModelError) -> ModelError {
        record_error(&self.span, &error);
        error
    }
}

/// Adds the previews of an answer that came in one body.
fn push_response_events(response: &Response, ready: &mut VecDeque<ModelEvent>) {
    ready.push_back(ModelEvent::Started);
    for (index, block) in response.content.iter().enumerate() {
        match block.kind() {
            BlockKind::Text(text) => ready.push_back(ModelEvent::TextDelta { index, text: text.clone() }),
            BlockKind::Thinking(text) => {
                ready.push_back(ModelEvent::ThinkingDelta { index, text: text.clone() });
            }
            BlockKind::ToolUse(call) => {
                ready.push_back(ModelEvent::ToolUseStarted { index, name: call.name.clone() });
                let partial_json = call.input.get().to_owned();
                ready.push_back(ModelEvent::ToolInputDelta { index, partial_json });
            }
            _ => {}
        }
    }
    ready.push_back(ModelEvent::UsageReported(response.usage));
}

fn is_event_stream(response: &reqwest::Response) -> bool {
    media_type(response).eq_ignore_ascii_case("text/event-stream")
}

fn is_json(response: &reqwest::Response) -> bool {
    let media_type = media_type(response).to_ascii_lowercase();
    media_type == "application/json" || media_type.ends_with("+json")
}

fn media_type(response: &reqwest::Response) -> &str {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim()
}

/// Converts an error into one with unknown outcome. Errors with a known outcome stay: a missing container, and a refusal before any output.
fn unknown_outcome(error: ModelError, shown: OutputShown) -> ModelError {
    let is_certain = match &error.kind {
        ModelErrorKind::ContainerGone => true,
        ModelErrorKind::Api(kind) => shown == OutputShown::Nothing && is_refusal(kind),
        _ => false,
    };
    if is_certain {
        return error;
    }
    let message = format!(
        "{error}; the service may have acted on the call, so it was not retried; its effects are unknown"
    );
    ModelError { kind: ModelErrorKind::OutcomeUnknown, message, ..error }
}

const fn is_refusal(kind: &ApiErrorKind) -> bool {
    matches!(
        kind,
        ApiErrorKind::InvalidRequest
            | ApiErrorKind::Authentication
            | ApiErrorKind::Billing
            | ApiErrorKind::Permission
            | ApiErrorKind::NotFound
    )
}
