//! [`ModelCall`]: one model call, with admission, attempts and retries. It is not repeated once output was shown.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conjure_base::Deadline;
use conjure_conversation::{ApiErrorKind, ModelError, ModelErrorKind, ModelEvent, Request, SideEffects};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use tracing::{Instrument, Span, field};

use crate::api_response::ApiResponse;
use crate::attempt_error::{AttemptError, PossibleEffects, RetryDecision, not_admitted};
use crate::effects::effects_of;
use crate::limiter::{MAX_CLOSED, Permit, QueueTicket};
use crate::message_accumulator::OutputShown;
use crate::messages::MessagesInner;
use crate::request_body::{Delivery, container_id, request_body};
use crate::response_stream::ResponseStream;
use crate::retry::{backoff, is_limit};

/// A running model call.
pub(crate) struct ModelCall {
    inner: Arc<MessagesInner>,
    body: Bytes,
    delivery: Delivery,
    /// The container that the request names, if any.
    container: Option<String>,
    /// A call with possible side effects is repeated only if the service has not started it.
    effects: SideEffects,
    ticket: QueueTicket,
    deadline: Deadline,
    /// How many attempts have failed.
    failed_attempts: u32,
    /// The last attempt's error.
    last_error: Option<ModelError>,
    stage: CallStage,
    /// When the next attempt is due; `None`: now.
    due: Option<Deadline>,
    response: Option<ResponseStream>,
    span: Span,
}

/// The stage of a streamed call before its response.
enum CallStage {
    /// Not started.
    New,
    /// Waiting for the backoff and for the rate limiter.
    Waiting,
    /// Admitted; the request is sent next.
    Admitted(Permit),
}

impl ModelCall {
    pub(crate) fn new(inner: Arc<MessagesInner>, request: &Request, delivery: Delivery) -> Self {
        let shared = &inner.shared;
        let options = &inner.options;
        let span = tracing::info_span!(
            "chat",
            otel.name = format!("chat {}", options.model()),
            otel.kind = "client",
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = "anthropic",
            gen_ai.request.model = options.model(),
            gen_ai.request.max_tokens = options.max_tokens(),
            gen_ai.response.id = field::Empty,
            gen_ai.response.model = field::Empty,
            gen_ai.response.finish_reasons = field::Empty,
            gen_ai.usage.input_tokens = field::Empty,
            gen_ai.usage.output_tokens = field::Empty,
            gen_ai.usage.cache_creation.input_tokens = field::Empty,
            gen_ai.usage.cache_read.input_tokens = field::Empty,
            server.address = shared.transport.host(),
            error.r#type = field::Empty,
            anthropic.request_id = field::Empty,
            conjure.turn = %request.turn,
            conjure.call = request.call,
        );
        Self {
            body: Bytes::from(request_body(request, options, delivery)),
            delivery,
            container: container_id(request, options),
            effects: effects_of(request, options),
            ticket: shared.limiter.ticket(),
            deadline: shared.transport.clock.deadline(shared.transport.timeouts.total),
            failed_attempts: 0,
            last_error: None,
            stage: CallStage::New,
            due: None,
            response: None,
            span,
            inner,
        }
    }

    /// Runs until there are events, which it adds to `ready`, or until the response is complete.
    pub(crate) async fn next(
        &mut self,
        ready: &mut VecDeque<ModelEvent>,
    ) -> Result<Option<ApiResponse>, ModelError> {
        let span = self.span.clone();
        async {
            loop {
                let step = match &mut self.response {
                    Some(reading) => {
                        let container = self.container.as_deref();
                        reading.step(&self.inner, self.deadline, container, ready).await
                    }
                    None => self.advance(ready).await.map(|()| None),
                };
                match step {
                    Ok(Some(answer)) => return Ok(Some(self.record_response(answer))),
                    Ok(None) if !ready.is_empty() => {
                        if self.shown() == OutputShown::Something {
                            // The call is never sent again.
                            self.body = Bytes::new();
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

    /// Moves to the next stage. `Waiting` and `Sent` events are emitted before the call waits or sends.
    async fn advance(&mut self, ready: &mut VecDeque<ModelEvent>) -> Result<(), AttemptError> {
        let permit = match std::mem::replace(&mut self.stage, CallStage::Waiting) {
            CallStage::Admitted(permit) => {
                let response = self.attempt(permit).await?;
                self.response = Some(ResponseStream::new(&self.inner, response));
                return Ok(());
            }
            CallStage::New => self.inner.shared.limiter.try_admit(),
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
        Ok(())
    }

    /// Waits until the next attempt is due.
    async fn pause(&mut self) {
        if let Some(until) = self.due {
            self.inner.shared.transport.clock.sleep_until(until).await;
            self.due = None;
        }
    }

    fn shown(&self) -> OutputShown {
        self.response.as_ref().map_or(OutputShown::Nothing, |reading| reading.accumulator.shown())
    }

    /// Runs a call without streaming and returns its response.
    pub(crate) async fn unstreamed(mut self) -> Result<ApiResponse, ModelError> {
        let span = self.span.clone();
        async {
            loop {
                match self.attempt_unstreamed().await {
                    Ok(answer) => return Ok(self.record_response(answer)),
                    Err(failure) => self.recover(failure, None)?,
                }
                self.pause().await;
            }
        }
        .instrument(span)
        .await
    }

    async fn attempt_unstreamed(&mut self) -> Result<ApiResponse, AttemptError> {
        let permit = self.wait_for_permit().await?;
        let mut response = self.attempt(permit).await?;
        let transport = &self.inner.shared.transport;
        let request_id = transport.errors.request_id(response.headers());
        let body = transport.body(&mut response, self.deadline).await;
        let answer = body.and_then(|body| {
            self.inner.read_whole(&body).map_err(|reason| {
                transport.errors.unexpected_response(
                    &format!("the service did not answer with a message ({reason})"),
                    &body,
                )
            })
        });
        match answer {
            Ok(mut answer) => {
                self.inner.complete(&mut answer, request_id);
                Ok(answer)
            }
            Err(mut failure) => {
                failure.error.request_id = failure.error.request_id.or(request_id);
                Err(failure)
            }
        }
    }

    /// Waits for a permit of the rate limiter for one attempt.
    async fn wait_for_permit(&mut self) -> Result<Permit, AttemptError> {
        let limiter = &self.inner.shared.limiter;
        limiter.admit(self.ticket, self.deadline).await.map_err(|refused| {
            let mut error = self.last_error.take().unwrap_or_else(|| not_admitted(refused.retry_after));
            // A `retry-after` beyond the gate's limit is still reported to the caller.
            let asked = error.retry_after.filter(|asked| *asked > MAX_CLOSED);
            error.retry_after =
                asked.or_else(|| (!refused.retry_after.is_zero()).then_some(refused.retry_after));
            AttemptError { error, next: RetryDecision::GiveUp, effects: PossibleEffects::None }
        })
    }

    /// Sends one attempt and returns the head of a successful response.
    async fn attempt(&mut self, permit: Permit) -> Result<Response, AttemptError> {
        let shared = &self.inner.shared;
        let transport = &shared.transport;
        let idle = match self.delivery {
            Delivery::Streamed => transport.timeouts.idle,
            // The head arrives when the response is complete.
            Delivery::Whole => transport.timeouts.total,
        };
        let (url, body) = (self.inner.url.clone(), self.body.clone());
        let sent = transport.send(url, body, self.inner.betas.as_ref(), idle, self.deadline).await;
        let mut response = match sent {
            Ok(response) => response,
            // Without a response nothing is known about the limit; dropping the permit releases it.
            Err(failure) => return Err(failure),
        };
        let status = response.status().as_u16();
        if is_limit(status) {
            // Close the gate before reading the body.
            let now = transport.clock.timestamp();
            let wait = crate::retry::retry_after(response.headers(), now)
                .unwrap_or_else(|| backoff(self.failed_attempts, shared.jitter.next()));
            permit.limited(wait, shared.jitter.next());
        } else {
            permit.answered();
        }
        if !response.status().is_success() {
            let body = transport.excerpt(&mut response, self.deadline).await;
            let now = transport.clock.timestamp();
            return Err(transport.errors.status(
                status,
                response.headers(),
                &body,
                now,
                self.container.as_deref(),
            ));
        }
        if self.delivery == Delivery::Streamed && !is_event_stream(&response) {
            let body = transport.excerpt(&mut response, self.deadline).await;
            let mut failure = transport
                .errors
                .unexpected_response("the service did not answer with a stream of events", &body);
            failure.error.request_id = transport.errors.request_id(response.headers());
            return Err(failure);
        }
        Ok(response)
    }

    /// Schedules the next attempt, or returns the final error.
    fn recover(&mut self, failure: AttemptError, reading: Option<&ResponseStream>) -> Result<(), ModelError> {
        let AttemptError { mut error, next, effects: begun } = failure;
        if let Some(reading) = reading {
            error.request_id = error.request_id.or_else(|| reading.request_id.clone());
        }
        if reading.is_some() && next == RetryDecision::RetryWhenAdmitted {
            // An error in the stream has no `retry-after` header. Close the gate even if this call gives up.
            let (wait, random) = (
                backoff(self.failed_attempts, self.inner.shared.jitter.next()),
                self.inner.shared.jitter.next(),
            );
            self.inner.shared.limiter.limited(wait, random);
        }
        let shown = reading.map_or(OutputShown::Nothing, |reading| reading.accumulator.shown());
        if self.effects == SideEffects::Possible && begun == PossibleEffects::Possible {
            return Err(self.final_error(unknown_outcome(error, shown)));
        }
        let shared = &self.inner.shared;
        if next == RetryDecision::GiveUp
            || shown == OutputShown::Something
            || self.failed_attempts >= shared.retries
        {
            return Err(self.final_error(error));
        }
        let clock = &shared.transport.clock;
        let wait = match next {
            RetryDecision::Retry => {
                error.retry_after.unwrap_or_else(|| backoff(self.failed_attempts, shared.jitter.next()))
            }
            // The rate limiter waits instead.
            RetryDecision::RetryWhenAdmitted | RetryDecision::GiveUp => Duration::ZERO,
        };
        if wait >= clock.remaining(self.deadline) {
            // The wait would end in a timeout, which is a less useful error.
            return Err(self.final_error(error));
        }
        tracing::debug!(
            attempt = self.failed_attempts + 1,
            wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            request_id = error.request_id.as_deref(),
            "the model call failed and is tried again: {error}"
        );
        self.failed_attempts += 1;
        self.last_error = Some(error);
        self.due = Some(clock.deadline(wait));
        Ok(())
    }

    fn final_error(&self, error: ModelError) -> ModelError {
        self.span.record("error.type", telemetry_name(&error.kind));
        if let Some(id) = &error.request_id {
            self.span.record("anthropic.request_id", id);
        }
        error
    }

    fn record_response(&self, answer: ApiResponse) -> ApiResponse {
        let (span, response) = (&self.span, &answer.response);
        let optional = [
            ("gen_ai.response.id", &response.id),
            ("gen_ai.response.model", &response.model),
            ("anthropic.request_id", &response.request_id),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                span.record(name, value.as_str());
            }
        }
        span.record("gen_ai.response.finish_reasons", field::display(&response.stop_reason));
        // The conventions count all input tokens, cached or not.
        span.record("gen_ai.usage.input_tokens", response.usage.total_input());
        span.record("gen_ai.usage.output_tokens", response.usage.output_tokens);
        span.record("gen_ai.usage.cache_creation.input_tokens", response.usage.cache_creation_input_tokens);
        span.record("gen_ai.usage.cache_read.input_tokens", response.usage.cache_read_input_tokens);
        answer
    }
}

fn is_event_stream(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|value| value.split(';').next()).unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("text/event-stream")
}

/// Converts an error into one with unknown outcome. Definite errors stay: a missing container, and a refusal before any output.
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
        "{error}; the service may have acted on the call, so it was not sent again: what it did is not known"
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

/// The error type for telemetry.
fn telemetry_name(kind: &ModelErrorKind) -> String {
    match kind {
        ModelErrorKind::Api(ApiErrorKind::Unknown(_)) => "unknown".to_owned(),
        ModelErrorKind::Api(kind) => String::from(kind.clone()),
        ModelErrorKind::ContainerGone => "container_gone".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    }
}
