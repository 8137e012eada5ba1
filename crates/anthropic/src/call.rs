//! One model call: admitted, sent, read, and tried again as long as nothing of it was shown.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conjure_base::Deadline;
use conjure_conversation::{ApiErrorKind, CallEffects, ModelError, ModelErrorKind, ModelEvent, Request};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use tracing::{Instrument, Span, field};

use crate::accumulate::{Accumulator, Shown, StreamError};
use crate::answer::Answer;
use crate::body::{Delivery, body, container_id};
use crate::effects::effects_of;
use crate::failure::{Effects, Failure, Next, not_admitted};
use crate::limiter::{LONGEST_CLOSED, Permit, Ticket};
use crate::messages::Inner;
use crate::retry::{backoff, is_limit};
use crate::sse::SseParser;

/// How long the end of the connection's body is awaited after `message_stop`, so that the connection can be used
/// again. It comes at once, or it does not matter.
const DRAIN: Duration = Duration::from_millis(20);
/// How much is read for that, in bytes: a service that never ends is not waited for.
const LONGEST_DRAIN: usize = 4 << 10;

/// A call under way.
pub(crate) struct Call {
    inner: Arc<Inner>,
    body: Bytes,
    delivery: Delivery,
    /// The container that the request names.
    container: Option<String>,
    /// One that may have any is sent again only where it is known that nothing has begun.
    effects: CallEffects,
    ticket: Ticket,
    deadline: Deadline,
    /// How many attempts have failed.
    failed: u32,
    /// What the last of them failed with.
    last: Option<ModelError>,
    stage: Stage,
    /// When the next attempt is due; `None`: now.
    due: Option<Deadline>,
    reading: Option<Reading>,
    span: Span,
}

/// What a streamed call was told to do, while no answer is read.
enum Stage {
    /// Nothing yet.
    New,
    /// It waits until the next attempt is due, and for leave.
    Waiting,
    /// It has leave, and goes out next.
    Leaving(Permit),
}

/// An answer that is being streamed.
struct Reading {
    response: Response,
    request_id: Option<String>,
    parser: SseParser,
    accumulator: Accumulator,
    received: usize,
}

impl Call {
    pub(crate) fn new(inner: Arc<Inner>, request: &Request, delivery: Delivery) -> Self {
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
            body: Bytes::from(body(request, options, delivery)),
            delivery,
            container: container_id(request, options),
            effects: effects_of(request, options),
            ticket: shared.limiter.ticket(),
            deadline: shared.transport.clock.deadline(shared.transport.timeouts.total),
            failed: 0,
            last: None,
            stage: Stage::New,
            due: None,
            reading: None,
            span,
            inner,
        }
    }

    /// Goes on until there is something to show, which is then in `ready`, or until the answer is whole.
    pub(crate) async fn next(
        &mut self,
        ready: &mut VecDeque<ModelEvent>,
    ) -> Result<Option<Answer>, ModelError> {
        let span = self.span.clone();
        async {
            loop {
                let step = match &mut self.reading {
                    Some(reading) => {
                        let container = self.container.as_deref();
                        reading.step(&self.inner, self.deadline, container, ready).await
                    }
                    None => self.begin(ready).await.map(|()| None),
                };
                match step {
                    Ok(Some(answer)) => return Ok(Some(self.finished(answer))),
                    Ok(None) if !ready.is_empty() => {
                        if self.shown() == Shown::Something {
                            // The call is never sent again.
                            self.body = Bytes::new();
                        }
                        return Ok(None);
                    }
                    Ok(None) => {}
                    Err(failure) => {
                        let reading = self.reading.take();
                        self.recover(failure, reading.as_ref())?;
                        ready.push_back(ModelEvent::Waiting);
                        return Ok(None);
                    }
                }
            }
        }
        .instrument(span)
        .await
    }

    /// The way to an answer that is read. That the request waits, and that it goes out, is told before it does.
    async fn begin(&mut self, ready: &mut VecDeque<ModelEvent>) -> Result<(), Failure> {
        let permit = match std::mem::replace(&mut self.stage, Stage::Waiting) {
            Stage::Leaving(permit) => {
                let response = self.attempt(permit).await?;
                self.reading = Some(Reading::new(&self.inner, response));
                return Ok(());
            }
            Stage::New => self.inner.shared.limiter.try_admit(),
            Stage::Waiting => {
                self.pause().await;
                Some(self.admitted().await?)
            }
        };
        ready.push_back(match permit {
            Some(permit) => {
                self.stage = Stage::Leaving(permit);
                ModelEvent::Sent
            }
            None => ModelEvent::Waiting,
        });
        Ok(())
    }

    /// Until the next attempt is due.
    async fn pause(&mut self) {
        if let Some(until) = self.due {
            self.inner.shared.transport.clock.sleep_until(until).await;
            self.due = None;
        }
    }

    fn shown(&self) -> Shown {
        self.reading.as_ref().map_or(Shown::Nothing, |reading| reading.accumulator.shown())
    }

    /// The whole answer of a call that is not streamed.
    pub(crate) async fn whole(mut self) -> Result<Answer, ModelError> {
        let span = self.span.clone();
        async {
            loop {
                match self.attempt_whole().await {
                    Ok(answer) => return Ok(self.finished(answer)),
                    Err(failure) => self.recover(failure, None)?,
                }
                self.pause().await;
            }
        }
        .instrument(span)
        .await
    }

    async fn attempt_whole(&mut self) -> Result<Answer, Failure> {
        let permit = self.admitted().await?;
        let mut response = self.attempt(permit).await?;
        let transport = &self.inner.shared.transport;
        let request_id = transport.reporter.request_id(response.headers());
        let body = transport.body(&mut response, self.deadline).await;
        let answer = body.and_then(|body| {
            self.inner.read_whole(&body).map_err(|reason| {
                transport
                    .reporter
                    .not_an_answer(&format!("the service did not answer with a message ({reason})"), &body)
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

    /// Leave of the limiter for one attempt.
    async fn admitted(&mut self) -> Result<Permit, Failure> {
        let limiter = &self.inner.shared.limiter;
        limiter.admit(self.ticket, self.deadline).await.map_err(|refused| {
            let mut error = self.last.take().unwrap_or_else(|| not_admitted(refused.retry_after));
            // What the service asked for stands where the gate is not closed for so long.
            let asked = error.retry_after.filter(|asked| *asked > LONGEST_CLOSED);
            error.retry_after =
                asked.or_else(|| (!refused.retry_after.is_zero()).then_some(refused.retry_after));
            Failure { error, next: Next::GiveUp, effects: Effects::None }
        })
    }

    /// One attempt: the request, the head of a good answer.
    async fn attempt(&mut self, permit: Permit) -> Result<Response, Failure> {
        let shared = &self.inner.shared;
        let transport = &shared.transport;
        let idle = match self.delivery {
            Delivery::Streamed => transport.timeouts.idle,
            // The head comes when the answer is complete.
            Delivery::Whole => transport.timeouts.total,
        };
        let (url, body) = (self.inner.url.clone(), self.body.clone());
        let sent = transport.send(url, body, self.inner.betas.as_ref(), idle, self.deadline).await;
        let mut response = match sent {
            Ok(response) => response,
            // No answer says nothing of the limit; the permit returns by being dropped.
            Err(failure) => return Err(failure),
        };
        let status = response.status().as_u16();
        if is_limit(status) {
            // The others must know before the body has been read.
            let now = transport.clock.timestamp();
            let wait = crate::retry::retry_after(response.headers(), now)
                .unwrap_or_else(|| backoff(self.failed, shared.jitter.next()));
            permit.limited(wait, shared.jitter.next());
        } else {
            permit.answered();
        }
        if !response.status().is_success() {
            let body = transport.excerpt(&mut response, self.deadline).await;
            let now = transport.clock.timestamp();
            return Err(transport.reporter.status(
                status,
                response.headers(),
                &body,
                now,
                self.container.as_deref(),
            ));
        }
        if self.delivery == Delivery::Streamed && !is_event_stream(&response) {
            let body = transport.excerpt(&mut response, self.deadline).await;
            let mut failure =
                transport.reporter.not_an_answer("the service did not answer with a stream of events", &body);
            failure.error.request_id = transport.reporter.request_id(response.headers());
            return Err(failure);
        }
        Ok(response)
    }

    /// There is a next attempt, and when; or the call gives up.
    fn recover(&mut self, failure: Failure, reading: Option<&Reading>) -> Result<(), ModelError> {
        let Failure { mut error, next, effects: begun } = failure;
        if let Some(reading) = reading {
            error.request_id = error.request_id.or_else(|| reading.request_id.clone());
        }
        if reading.is_some() && next == Next::RetryWhenAdmitted {
            // A stream has no headers left to name a wait; the others must know also when this call gives up.
            let (wait, random) =
                (backoff(self.failed, self.inner.shared.jitter.next()), self.inner.shared.jitter.next());
            self.inner.shared.limiter.limited(wait, random);
        }
        let shown = reading.map_or(Shown::Nothing, |reading| reading.accumulator.shown());
        if self.effects == CallEffects::Possible && begun == Effects::Possible {
            return Err(self.gave_up(unknown_outcome(error, shown)));
        }
        let shared = &self.inner.shared;
        if next == Next::GiveUp || shown == Shown::Something || self.failed >= shared.retries {
            return Err(self.gave_up(error));
        }
        let clock = &shared.transport.clock;
        let wait = match next {
            Next::Retry => error.retry_after.unwrap_or_else(|| backoff(self.failed, shared.jitter.next())),
            // The limiter keeps this wait.
            Next::RetryWhenAdmitted | Next::GiveUp => Duration::ZERO,
        };
        if wait >= clock.remaining(self.deadline) {
            // Waiting would end in a timeout, which says less.
            return Err(self.gave_up(error));
        }
        tracing::debug!(
            attempt = self.failed + 1,
            wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            request_id = error.request_id.as_deref(),
            "the model call failed and is tried again: {error}"
        );
        self.failed += 1;
        self.last = Some(error);
        self.due = Some(clock.deadline(wait));
        Ok(())
    }

    fn gave_up(&self, error: ModelError) -> ModelError {
        self.span.record("error.type", kind_name(&error.kind));
        if let Some(id) = &error.request_id {
            self.span.record("anthropic.request_id", id);
        }
        error
    }

    fn finished(&self, answer: Answer) -> Answer {
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
        // The conventions count all input here, cached or not.
        span.record("gen_ai.usage.input_tokens", response.usage.total_input());
        span.record("gen_ai.usage.output_tokens", response.usage.output_tokens);
        span.record("gen_ai.usage.cache_creation.input_tokens", response.usage.cache_creation_input_tokens);
        span.record("gen_ai.usage.cache_read.input_tokens", response.usage.cache_read_input_tokens);
        answer
    }
}

impl Reading {
    fn new(inner: &Inner, response: Response) -> Self {
        let transport = &inner.shared.transport;
        Self {
            request_id: transport.reporter.request_id(response.headers()),
            response,
            parser: SseParser::new(transport.limits.event),
            accumulator: Accumulator::new(),
            received: 0,
        }
    }

    /// Reads one piece of the body.
    async fn step(
        &mut self,
        inner: &Inner,
        deadline: Deadline,
        container: Option<&str>,
        ready: &mut VecDeque<ModelEvent>,
    ) -> Result<Option<Answer>, Failure> {
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
            .map_err(|error: StreamError| transport.reporter.stream(error, container))?;
        Ok(None)
    }

    /// The body is over before the answer is.
    fn cut_off(&self) -> Failure {
        let message = match self.received {
            0 => "the stream ended before anything of the answer came",
            _ => "the stream ended before the answer was complete (no `message_stop`)",
        };
        Failure::new(ModelErrorKind::Truncated, message, Next::Retry)
    }

    async fn finish(&mut self, inner: &Inner) -> Result<Option<Answer>, Failure> {
        let transport = &inner.shared.transport;
        let drained = transport.clock.deadline(DRAIN);
        let mut drained_bytes = 0;
        while let Ok(Some(chunk)) = transport.chunk(&mut self.response, drained).await {
            drained_bytes += chunk.len();
            if drained_bytes > LONGEST_DRAIN {
                break;
            }
        }
        let answer = std::mem::take(&mut self.accumulator).finish();
        let mut answer =
            answer.map_err(|error| transport.reporter.stream(error, None))?.ok_or_else(|| self.cut_off())?;
        inner.complete(&mut answer, self.request_id.clone());
        Ok(Some(answer))
    }
}

fn is_event_stream(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|value| value.split(';').next()).unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("text/event-stream")
}

/// A failure after which nobody knows what the service has done. What the service has said for certain stays: that the container
/// is gone, and that it refuses the request, as long as it has not begun to answer.
fn unknown_outcome(error: ModelError, shown: Shown) -> ModelError {
    let is_certain = match &error.kind {
        ModelErrorKind::ContainerGone => true,
        ModelErrorKind::Api(kind) => shown == Shown::Nothing && is_refusal(kind),
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

/// What telemetry calls a failure.
fn kind_name(kind: &ModelErrorKind) -> String {
    match kind {
        ModelErrorKind::Api(ApiErrorKind::Unknown(_)) => "unknown".to_owned(),
        ModelErrorKind::Api(kind) => String::from(kind.clone()),
        ModelErrorKind::ContainerGone => "container_gone".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    }
}
