//! One call of the Skills or Files API: admitted, sent, and made again where that does no harm.
//!
//! What only reads is repeated as a model call is. What deletes is repeated too, and finds nothing left of what an attempt
//! before it has deleted. What creates is repeated only where it cannot have arrived: no connection came about, or the
//! service said that the key's limit, or its own, refused it. Dropped, a call is over; nothing is kept of it.

use std::time::Duration;

use conjure_base::Deadline;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, Response};
use serde::de::DeserializeOwned;

use crate::config::Profile;
use crate::failure::{Next, not_admitted, timeout};
use crate::hosted::multipart::Form;
use crate::hosted::{HostedError, HostedErrorKind, HostedLimits};
use crate::limiter::LONGEST_CLOSED;
use crate::messages::Shared;
use crate::retry::{Advice, backoff, is_limit, retry_after};

/// Which of both interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Skills,
    Files,
}

impl Api {
    const fn beta(self) -> &'static str {
        match self {
            Self::Skills => "skills-2025-10-02",
            Self::Files => "files-api-2025-04-14",
        }
    }
}

/// What is asked.
pub(crate) struct Ask<'a> {
    pub(crate) api: Api,
    pub(crate) method: Method,
    /// Behind `/v1`.
    pub(crate) path: Vec<&'a str>,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) form: Option<&'a Form>,
}

/// What is wanted of a good answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    /// All of it, as JSON.
    Record,
    /// Its head; the caller reads on.
    Content,
}

/// A good answer.
enum Good {
    Record(Vec<u8>, Option<String>),
    Content(Response),
}

/// A failed attempt, and whether another one does no harm.
struct Failed {
    error: HostedError,
    next: Next,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(api: Api, method: Method, path: Vec<&'a str>) -> Self {
        Self { api, method, path, query: Vec::new(), form: None }
    }

    pub(crate) fn get(api: Api, path: Vec<&'a str>) -> Self {
        Self::new(api, Method::GET, path)
    }

    pub(crate) fn with_form(mut self, form: &'a Form) -> Self {
        self.form = Some(form);
        self
    }

    pub(crate) fn with_query(mut self, query: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        self.query.extend(query);
        self
    }

    /// An id that would lead elsewhere is none.
    fn check(&self) -> Result<(), HostedError> {
        let is_bad = |segment: &&str| {
            segment.trim().is_empty()
                || matches!(*segment, "." | "..")
                || segment.chars().any(char::is_control)
        };
        match self.path.iter().find(|segment| is_bad(segment)) {
            None => Ok(()),
            Some(segment) => {
                let shown: String =
                    segment.chars().filter(|character| !character.is_control()).take(100).collect();
                let message = format!("`{shown}` is no id; take one as the service gave it");
                Err(HostedError::new(HostedErrorKind::InvalidId, message))
            }
        }
    }
}

impl Shared {
    /// A record that the service answers with.
    pub(crate) async fn record<T>(
        &self,
        ask: Ask<'_>,
        limits: &HostedLimits,
        read: impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<T, HostedError> {
        let is_creation = ask.method == Method::POST;
        match self.hosted(&ask, limits, Want::Record).await? {
            Good::Record(body, request_id) => read(&body).map_err(|reason| {
                let what = format!("the service did not answer as it should ({reason})");
                let failure = self.transport.reporter.not_an_answer(&what, &body);
                let error = HostedError::of_failure(failure).with_request_id(request_id);
                if is_creation { error.with_unknown_outcome() } else { error }
            }),
            Good::Content(_) => Err(HostedError::new(HostedErrorKind::Protocol, "no record was read")),
        }
    }

    /// A record as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(
        &self,
        ask: Ask<'_>,
        limits: &HostedLimits,
    ) -> Result<T, HostedError> {
        self.record(ask, limits, |body| serde_json::from_slice(body).map_err(|error| error.to_string())).await
    }

    /// Deletes. What is not there any more when it is asked again is deleted.
    pub(crate) async fn delete(&self, ask: Ask<'_>, limits: &HostedLimits) -> Result<(), HostedError> {
        self.hosted(&ask, limits, Want::Record).await.map(drop)
    }

    /// The head of a download.
    pub(crate) async fn content(&self, ask: Ask<'_>, limits: &HostedLimits) -> Result<Response, HostedError> {
        match self.hosted(&ask, limits, Want::Content).await? {
            Good::Content(response) => Ok(response),
            Good::Record(..) => Err(HostedError::new(HostedErrorKind::Protocol, "no content was asked for")),
        }
    }

    async fn hosted(&self, ask: &Ask<'_>, limits: &HostedLimits, want: Want) -> Result<Good, HostedError> {
        ask.check()?;
        let clock = &self.transport.clock;
        let is_transfer = ask.form.is_some() || want == Want::Content;
        let total = if is_transfer { limits.transfer } else { self.transport.timeouts.total };
        let deadline = clock.deadline(total);
        let ticket = self.limiter.ticket();
        let mut failed = 0;
        let mut last: Option<HostedError> = None;
        // An attempt that may have arrived has come before.
        let mut may_be_done = false;
        loop {
            let permit = match self.limiter.admit(ticket, deadline).await {
                Ok(permit) => permit,
                Err(refused) => {
                    let wait = refused.retry_after;
                    let error = last.take().unwrap_or_else(|| {
                        HostedError::of_failure(crate::failure::Failure {
                            error: not_admitted(wait),
                            next: Next::GiveUp,
                            effects: crate::failure::Effects::None,
                        })
                    });
                    let asked = error.retry_after().filter(|asked| *asked > LONGEST_CLOSED);
                    return Err(error.with_retry_after(asked.or((!wait.is_zero()).then_some(wait))));
                }
            };
            let sent = self.send(ask, want, deadline).await;
            // No answer says nothing of the limit; the permit returns by being dropped.
            let attempt = match sent {
                Ok(response) => {
                    self.report(permit, &response, failed);
                    self.read(ask, response, want, deadline).await
                }
                Err(failure) => Err(failure),
            };
            let Failed { error, next } = match attempt {
                Ok(good) => return Ok(good),
                Err(failure) => failure,
            };
            let is_gone =
                ask.method == Method::DELETE && may_be_done && error.kind() == HostedErrorKind::NotFound;
            if is_gone {
                return Ok(Good::Record(Vec::new(), None));
            }
            may_be_done |= error.status_code().is_none_or(|status| status >= 500);
            let wait = match next {
                Next::GiveUp => return Err(error),
                _ if failed >= self.retries => return Err(error),
                // The limiter keeps this wait.
                Next::RetryWhenAdmitted => Duration::ZERO,
                Next::Retry => error.retry_after().unwrap_or_else(|| backoff(failed, self.jitter.next())),
            };
            if wait >= clock.remaining(deadline) {
                return Err(error);
            }
            tracing::debug!(attempt = failed + 1, "a call of the service failed and is tried again: {error}");
            failed += 1;
            last = Some(error);
            clock.sleep_until(clock.deadline(wait)).await;
        }
    }

    /// One request, up to the head of its answer.
    async fn send(&self, ask: &Ask<'_>, want: Want, deadline: Deadline) -> Result<Response, Failed> {
        let transport = &self.transport;
        let mut url = transport.url(ask.path.iter().copied());
        let profile = transport.profile();
        let beta = (profile == Profile::Beta).then(|| ("beta", "true".to_owned()));
        let query: Vec<_> = beta.into_iter().chain(ask.query.iter().cloned()).collect();
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = transport.request(ask.method.clone(), url).header(
            ACCEPT,
            match want {
                Want::Record => "application/json",
                Want::Content => "application/binary",
            },
        );
        if profile == Profile::Beta {
            request = request.header("anthropic-beta", ask.api.beta());
        }
        if ask.method == Method::DELETE {
            // As the official SDK does.
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(form) = ask.form {
            let body = reqwest::Body::wrap(form.body());
            request = request.header(CONTENT_TYPE, form.content_type()).body(body);
        }
        let moved = || ask.form.map_or(0, Form::sent);
        let idle = transport.timeouts.idle;
        let is_safe = ask.method != Method::POST;
        let answered = transport.moving(idle, deadline, moved, request.send()).await;
        let failed = |error: HostedError, is_unsent: bool| match (is_safe, is_unsent) {
            (true, _) | (_, true) => Failed { error, next: Next::Retry },
            (false, false) => Failed { error: error.with_unknown_outcome(), next: Next::GiveUp },
        };
        match answered {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                if let Some(reason) = ask.form.and_then(Form::broken) {
                    let error = HostedError::new(HostedErrorKind::Unreadable, reason);
                    return Err(Failed { error, next: Next::GiveUp });
                }
                let failure = transport.reporter.transport(&error);
                let is_hopeless = failure.next == Next::GiveUp;
                let failed = failed(HostedError::of_failure(failure), error.is_connect());
                Err(if is_hopeless { Failed { next: Next::GiveUp, ..failed } } else { failed })
            }
            Err(expired) => {
                let what = if expired.is_total() { "the call took too long" } else { "nothing moved" };
                let message = format!("{what}: the service did not begin to answer (`idle` is {idle:?})");
                let mut failed = failed(HostedError::of_failure(timeout(message, Next::Retry)), false);
                if expired.is_total() {
                    failed.next = Next::GiveUp;
                }
                Err(failed)
            }
        }
    }

    /// Tells the limiter how the service answered.
    fn report(&self, permit: crate::limiter::Permit, response: &Response, failed: u32) {
        if is_limit(response.status().as_u16()) {
            let now = self.transport.clock.timestamp();
            let wait =
                retry_after(response.headers(), now).unwrap_or_else(|| backoff(failed, self.jitter.next()));
            permit.limited(wait, self.jitter.next());
        } else {
            permit.answered();
        }
    }

    /// Reads what is wanted of an answer.
    async fn read(
        &self,
        ask: &Ask<'_>,
        mut response: Response,
        want: Want,
        deadline: Deadline,
    ) -> Result<Good, Failed> {
        let transport = &self.transport;
        let status = response.status().as_u16();
        let request_id = transport.reporter.request_id(response.headers());
        if !response.status().is_success() {
            let headers = response.headers().clone();
            let body = transport.excerpt(&mut response, deadline).await;
            let said = transport.reporter.said(status, &headers, &body);
            let wait = retry_after(&headers, transport.clock.timestamp());
            let mut error = HostedError::status(status, said, wait);
            let advice = Advice::of(&headers);
            let is_repeated = match ask.method {
                Method::GET => advice.applied_to(status),
                // What conflicts with a deletion does not go away by itself.
                Method::DELETE => advice.applied_to(status) && (status != 409 || advice == Advice::Retry),
                _ => advice != Advice::GiveUp && is_limit(status),
            };
            // What failed in its midst may have done what it was for.
            if ask.method == Method::POST && status >= 500 && !is_limit(status) {
                error = error.with_unknown_outcome();
            }
            let next = match is_repeated {
                false => Next::GiveUp,
                true if is_limit(status) => Next::RetryWhenAdmitted,
                true => Next::Retry,
            };
            return Err(Failed { error, next });
        }
        if want == Want::Content {
            return Ok(Good::Content(response));
        }
        match transport.body(&mut response, deadline).await {
            Ok(body) => Ok(Good::Record(body, request_id)),
            Err(failure) => {
                let next = failure.next;
                let error = HostedError::of_failure(failure).with_request_id(request_id);
                Err(if ask.method == Method::POST {
                    Failed { error: error.with_unknown_outcome(), next: Next::GiveUp }
                } else {
                    Failed { error, next }
                })
            }
        }
    }
}
