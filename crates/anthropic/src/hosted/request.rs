//! Requests of the Skills and Files APIs: admission, sending, and retries.
//!
//! Reads and deletions are retried like model calls. If a retried deletion finds nothing, it has succeeded. A creation is retried only if
//! it cannot have had an effect: there was no connection, or the service refused it because of a limit. Dropping the future abandons the
//! request.

use std::time::Duration;

use conjure_base::Deadline;
use conjure_model_http::service_requests::{
    AttemptError, MAX_CLOSED, Permit, PossibleEffects, RetryDecision, backoff, is_limit, not_admitted,
    retry_after,
};
use conjure_model_http::{RetryAdvice, Wire as _};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, Response};
use serde::de::DeserializeOwned;

use crate::client_state::ClientState;
use crate::config::ApiProfile;
use crate::hosted::transfer::multipart::Form;
use crate::hosted::{HostedError, HostedErrorKind, HostedLimits};
use crate::wire::REQUEST_ID_HEADERS;

/// Which API a request belongs to.
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

/// A request of the Skills or Files API.
pub(crate) struct ApiRequest<'a> {
    pub(crate) api: Api,
    pub(crate) method: Method,
    /// The path segments after `/v1`.
    pub(crate) path: Vec<&'a str>,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) form: Option<&'a Form>,
}

/// How much of a successful response to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedBody {
    /// All of it, as JSON.
    Record,
    /// Only its head; the caller streams the body.
    Content,
}

/// A successful response.
enum SuccessResponse {
    Record(Vec<u8>, Option<String>),
    Content(Response),
}

/// A failed attempt with its retry decision.
struct FailedAttempt {
    error: HostedError,
    next: RetryDecision,
}

impl<'a> ApiRequest<'a> {
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

    /// Refuses ids that would change the path of the URL.
    fn check(&self) -> Result<(), HostedError> {
        let is_invalid = |segment: &&str| {
            segment.trim().is_empty()
                || matches!(*segment, "." | "..")
                || segment.chars().any(char::is_control)
        };
        match self.path.iter().find(|segment| is_invalid(segment)) {
            None => Ok(()),
            Some(segment) => {
                let shown: String =
                    segment.chars().filter(|character| !character.is_control()).take(100).collect();
                let message = format!("`{shown}` is not a valid id; use the id that the service returned");
                Err(HostedError::new(HostedErrorKind::InvalidId, message))
            }
        }
    }
}

impl ClientState {
    /// Sends a request and parses the body with `read`.
    pub(crate) async fn record<T>(
        &self,
        request: ApiRequest<'_>,
        limits: &HostedLimits,
        read: impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<T, HostedError> {
        let is_creation = request.method == Method::POST;
        match self.hosted(&request, limits, ExpectedBody::Record).await? {
            SuccessResponse::Record(body, request_id) => read(&body).map_err(|reason| {
                let what = format!("the service returned an unexpected response ({reason})");
                let failure =
                    self.http.transport().errors().unexpected_response(&what, self.wire.api_name(), &body);
                let error = HostedError::from_attempt(failure).with_request_id(request_id);
                if is_creation { error.with_unknown_outcome() } else { error }
            }),
            SuccessResponse::Content(_) => {
                Err(HostedError::new(HostedErrorKind::Protocol, "no record was read"))
            }
        }
    }

    /// Sends a request and parses the body as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(
        &self,
        request: ApiRequest<'_>,
        limits: &HostedLimits,
    ) -> Result<T, HostedError> {
        self.record(request, limits, |body| serde_json::from_slice(body).map_err(|error| error.to_string()))
            .await
    }

    /// Sends a deletion. If a retry finds nothing, the deletion has succeeded.
    pub(crate) async fn delete(
        &self,
        request: ApiRequest<'_>,
        limits: &HostedLimits,
    ) -> Result<(), HostedError> {
        self.hosted(&request, limits, ExpectedBody::Record).await.map(drop)
    }

    /// Starts a download and returns the response head.
    pub(crate) async fn content(
        &self,
        request: ApiRequest<'_>,
        limits: &HostedLimits,
    ) -> Result<Response, HostedError> {
        match self.hosted(&request, limits, ExpectedBody::Content).await? {
            SuccessResponse::Content(response) => Ok(response),
            SuccessResponse::Record(..) => {
                Err(HostedError::new(HostedErrorKind::Protocol, "no content was asked for"))
            }
        }
    }

    async fn hosted(
        &self,
        request: &ApiRequest<'_>,
        limits: &HostedLimits,
        expected_body: ExpectedBody,
    ) -> Result<SuccessResponse, HostedError> {
        request.check()?;
        let clock = self.http.transport().clock();
        let is_transfer = request.form.is_some() || expected_body == ExpectedBody::Content;
        let total = if is_transfer { limits.transfer } else { self.http.transport().timeouts().total };
        let deadline = clock.deadline(total);
        let ticket = self.http.limiter().ticket();
        let mut failed = 0;
        let mut last: Option<HostedError> = None;
        // Whether an earlier attempt may have arrived.
        let mut may_have_arrived = false;
        loop {
            let permit = match self.http.limiter().admit(ticket, deadline).await {
                Ok(permit) => permit,
                Err(refused) => {
                    let wait = refused.retry_after;
                    let error = last.take().unwrap_or_else(|| {
                        HostedError::from_attempt(AttemptError {
                            error: not_admitted(wait),
                            next: RetryDecision::GiveUp,
                            effects: PossibleEffects::None,
                        })
                    });
                    let requested = error.retry_after().filter(|requested| *requested > MAX_CLOSED);
                    return Err(error.with_retry_after(requested.or((!wait.is_zero()).then_some(wait))));
                }
            };
            let sent = self.send(request, expected_body, deadline).await;
            // Without a response, nothing is known about the limit. Dropping the permit releases it.
            let attempt = match sent {
                Ok(response) => {
                    self.report(permit, &response, failed);
                    self.read(request, response, expected_body, deadline).await
                }
                Err(failure) => Err(failure),
            };
            let FailedAttempt { error, next } = match attempt {
                Ok(success) => return Ok(success),
                Err(failure) => failure,
            };
            let is_already_deleted = request.method == Method::DELETE
                && may_have_arrived
                && error.kind() == HostedErrorKind::NotFound;
            if is_already_deleted {
                return Ok(SuccessResponse::Record(Vec::new(), None));
            }
            may_have_arrived |= error.status_code().is_none_or(|status| status >= 500);
            let wait = match next {
                RetryDecision::GiveUp => return Err(error),
                _ if failed >= self.http.retries() => return Err(error),
                // The rate limiter makes the retry wait.
                RetryDecision::RetryWhenAdmitted => Duration::ZERO,
                RetryDecision::Retry => {
                    error.retry_after().unwrap_or_else(|| backoff(failed, self.http.jitter().next()))
                }
            };
            if wait >= clock.remaining(deadline) {
                return Err(error);
            }
            tracing::debug!(attempt = failed + 1, "a call of the service failed and is retried: {error}");
            failed += 1;
            last = Some(error);
            clock.sleep_until(clock.deadline(wait)).await;
        }
    }

    /// Sends one attempt and returns the response head.
    async fn send(
        &self,
        request: &ApiRequest<'_>,
        expected_body: ExpectedBody,
        deadline: Deadline,
    ) -> Result<Response, FailedAttempt> {
        let transport = self.http.transport();
        let mut url = transport.url(["v1"].into_iter().chain(request.path.iter().copied()));
        let profile = self.profile();
        let beta = (profile == ApiProfile::Beta).then(|| ("beta", "true".to_owned()));
        let query: Vec<_> = beta.into_iter().chain(request.query.iter().cloned()).collect();
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut http_request = transport.request(request.method.clone(), url).header(
            ACCEPT,
            match expected_body {
                ExpectedBody::Record => "application/json",
                ExpectedBody::Content => "application/binary",
            },
        );
        if profile == ApiProfile::Beta {
            http_request = http_request.header("anthropic-beta", request.api.beta());
        }
        if request.method == Method::DELETE {
            // The official SDK sends this header too.
            http_request = http_request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(form) = request.form {
            let body = reqwest::Body::wrap(form.body());
            http_request = http_request.header(CONTENT_TYPE, form.content_type()).body(body);
        }
        let sent_bytes = || request.form.map_or(0, Form::sent);
        let idle = transport.timeouts().idle;
        let is_safe = request.method != Method::POST;
        let result = transport.with_idle_timeout(idle, deadline, sent_bytes, http_request.send()).await;
        let failed = |error: HostedError, is_unsent: bool| match (is_safe, is_unsent) {
            (true, _) | (_, true) => FailedAttempt { error, next: RetryDecision::Retry },
            (false, false) => {
                FailedAttempt { error: error.with_unknown_outcome(), next: RetryDecision::GiveUp }
            }
        };
        match result {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                if let Some(reason) = request.form.and_then(Form::read_error) {
                    let error = HostedError::new(HostedErrorKind::Unreadable, reason);
                    return Err(FailedAttempt { error, next: RetryDecision::GiveUp });
                }
                let failure = transport.errors().transport(&error);
                let is_final = failure.next == RetryDecision::GiveUp;
                let failed = failed(HostedError::from_attempt(failure), error.is_connect());
                Err(if is_final { FailedAttempt { next: RetryDecision::GiveUp, ..failed } } else { failed })
            }
            Err(expired) => {
                let what = if expired.is_total() { "the call took too long" } else { "nothing moved" };
                let message = format!("{what}: the service did not begin to answer (`idle` is {idle:?})");
                let mut failed = failed(
                    HostedError::from_attempt(AttemptError::timeout(message, RetryDecision::Retry)),
                    false,
                );
                if expired.is_total() {
                    failed.next = RetryDecision::GiveUp;
                }
                Err(failed)
            }
        }
    }

    /// Reports the response to the rate limiter.
    fn report(&self, permit: Permit, response: &Response, failed: u32) {
        if is_limit(response.status().as_u16()) {
            let now = self.http.transport().clock().timestamp();
            let wait = retry_after(response.headers(), now)
                .unwrap_or_else(|| backoff(failed, self.http.jitter().next()));
            permit.report_limit(wait, self.http.jitter().next());
        } else {
            permit.report_response();
        }
    }

    /// Reads the expected part of a response.
    async fn read(
        &self,
        request: &ApiRequest<'_>,
        mut response: Response,
        expected_body: ExpectedBody,
        deadline: Deadline,
    ) -> Result<SuccessResponse, FailedAttempt> {
        let transport = self.http.transport();
        let status = response.status().as_u16();
        let request_id = transport.errors().request_id(response.headers(), REQUEST_ID_HEADERS);
        if !response.status().is_success() {
            let headers = response.headers().clone();
            let body = transport.excerpt(&mut response, deadline).await;
            let said = transport.errors().service_error(&*self.wire, status, &headers, &body);
            let wait = retry_after(&headers, transport.clock().timestamp());
            let mut error = HostedError::status(status, said, wait);
            let advice = RetryAdvice::from_headers(&headers);
            let is_repeated = match request.method {
                Method::GET => advice.should_retry(status),
                // Retrying does not help if a deletion is in conflict with another change.
                Method::DELETE => {
                    advice.should_retry(status) && (status != 409 || advice == RetryAdvice::Retry)
                }
                _ => advice != RetryAdvice::GiveUp && is_limit(status),
            };
            // A creation that failed with a server error may have taken effect.
            if request.method == Method::POST && status >= 500 && !is_limit(status) {
                error = error.with_unknown_outcome();
            }
            let next = match is_repeated {
                false => RetryDecision::GiveUp,
                true if is_limit(status) => RetryDecision::RetryWhenAdmitted,
                true => RetryDecision::Retry,
            };
            return Err(FailedAttempt { error, next });
        }
        if expected_body == ExpectedBody::Content {
            return Ok(SuccessResponse::Content(response));
        }
        match transport.body(&mut response, deadline).await {
            Ok(body) => Ok(SuccessResponse::Record(body, request_id)),
            Err(failure) => {
                let next = failure.next;
                let error = HostedError::from_attempt(failure).with_request_id(request_id);
                Err(if request.method == Method::POST {
                    FailedAttempt { error: error.with_unknown_outcome(), next: RetryDecision::GiveUp }
                } else {
                    FailedAttempt { error, next }
                })
            }
        }
    }
}
