//! Converts transport and API errors into [`ModelError`], without secrets or HTML.

use std::error::Error;
use std::time::Duration;

use conjure_base::{Redactor, Timestamp};
use conjure_conversation::{ApiErrorKind, ModelError, ModelErrorKind};
use reqwest::header::HeaderMap;
use serde::Deserialize;

use crate::container_gone::ServiceErrorText;
use crate::message_accumulator::StreamError;
use crate::retry::{RetryAdvice, is_limit, retry_after};

/// The longest message of the service, in characters.
const MAX_MESSAGE_CHARS: usize = 2_000;
/// The longest excerpt of a body that is not JSON, in characters.
const MAX_EXCERPT_CHARS: usize = 200;
/// The longest `request-id`, in characters.
const MAX_REQUEST_ID_CHARS: usize = 200;

/// The error of one attempt, with its retry decision.
#[derive(Debug)]
pub(crate) struct AttemptError {
    pub(crate) error: ModelError,
    pub(crate) next: RetryDecision,
    pub(crate) effects: PossibleEffects,
}

/// Whether the service may have started to process the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PossibleEffects {
    /// It has not: there was no connection, or it refused the request.
    None,
    /// Unknown.
    Possible,
}

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// Another attempt, after the service's `retry-after` or our own backoff.
    Retry,
    /// Another attempt, when the key's rate limiter admits it.
    RetryWhenAdmitted,
    /// No further attempt.
    GiveUp,
}

impl AttemptError {
    pub(crate) fn new(kind: ModelErrorKind, message: impl Into<String>, next: RetryDecision) -> Self {
        Self { error: ModelError::new(kind, message), next, effects: PossibleEffects::Possible }
    }
}

/// A parsed error body of the service, redacted.
#[derive(Debug)]
pub(crate) struct ApiErrorBody {
    pub(crate) kind: ApiErrorKind,
    pub(crate) code: Option<String>,
    pub(crate) message: String,
    pub(crate) request_id: Option<String>,
}

/// Builds errors and redacts their messages.
#[derive(Debug)]
pub(crate) struct ErrorBuilder {
    redactor: Redactor,
}

impl ErrorBuilder {
    pub(crate) fn new(key: &str) -> Self {
        Self { redactor: Redactor::new([("ANTHROPIC_API_KEY", key)]) }
    }

    /// The `request-id` of these headers.
    pub(crate) fn request_id(&self, headers: &HeaderMap) -> Option<String> {
        let id = headers.get("request-id")?.to_str().ok()?;
        Some(self.clean(id, MAX_REQUEST_ID_CHARS))
    }

    /// Parses an error body of the service.
    pub(crate) fn api_error(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> ApiErrorBody {
        #[derive(Deserialize)]
        struct Body {
            error: Detail,
            #[serde(default)]
            request_id: Option<String>,
        }
        #[derive(Deserialize)]
        struct Detail {
            #[serde(rename = "type")]
            kind: String,
            #[serde(default)]
            message: String,
            #[serde(default)]
            details: serde_json::Value,
        }
        let request_id = self.request_id(headers);
        match serde_json::from_slice::<Body>(body) {
            Ok(Body { error, request_id: of_body }) => ApiErrorBody {
                kind: ApiErrorKind::from(self.clean(&error.kind, MAX_EXCERPT_CHARS)),
                code: error.details["error_code"].as_str().map(|code| self.clean(code, MAX_EXCERPT_CHARS)),
                message: self.clean(&error.message, MAX_MESSAGE_CHARS),
                request_id: request_id.or_else(|| of_body.map(|id| self.clean(&id, MAX_REQUEST_ID_CHARS))),
            },
            Err(_) => ApiErrorBody {
                kind: kind_of_status(status),
                code: None,
                message: self.excerpt(body),
                request_id,
            },
        }
    }

    /// The error of a response with an error status. `container` is the one that the request named.
    pub(crate) fn status(
        &self,
        status: u16,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
        container: Option<&str>,
    ) -> AttemptError {
        let ApiErrorBody { kind, code, message, request_id } = self.api_error(status, headers, body);
        let text = ServiceErrorText { kind: &kind, code: code.as_deref(), message: &message };
        let is_gone = container.is_some_and(|container| text.is_container_gone(container));
        let name = String::from(kind.clone());
        let error = ModelError {
            kind: if is_gone { ModelErrorKind::ContainerGone } else { ModelErrorKind::Api(kind) },
            message: format!("the service answered {status} ({name}): {message}"),
            retry_after: retry_after(headers, now),
            request_id,
        };
        let next = match RetryAdvice::from_headers(headers).should_retry(status) {
            _ if is_gone => RetryDecision::GiveUp,
            false => RetryDecision::GiveUp,
            true if is_limit(status) => RetryDecision::RetryWhenAdmitted,
            true => RetryDecision::Retry,
        };
        let effects = if status >= 500 && !is_limit(status) {
            PossibleEffects::Possible
        } else {
            PossibleEffects::None
        };
        AttemptError { error, next, effects }
    }

    /// The error of an invalid or failed stream. `container` is the one that the request named. Whether output was shown is checked
    /// elsewhere.
    pub(crate) fn stream(&self, error: StreamError, container: Option<&str>) -> AttemptError {
        match error {
            StreamError::Sse(error) => {
                AttemptError::new(ModelErrorKind::Protocol, error.to_string(), RetryDecision::GiveUp)
            }
            error @ StreamError::TooMany { .. } => {
                AttemptError::new(ModelErrorKind::Protocol, error.to_string(), RetryDecision::GiveUp)
            }
            StreamError::Protocol(reason) => {
                let reason = self.clean(&reason, MAX_MESSAGE_CHARS);
                let message = format!("the stream breaks the protocol: {reason}");
                AttemptError::new(ModelErrorKind::Protocol, message, RetryDecision::GiveUp)
            }
            StreamError::Service { kind, message } => {
                let message = self.clean(&message, MAX_MESSAGE_CHARS);
                let kind = match kind {
                    ApiErrorKind::Unknown(name) => {
                        ApiErrorKind::Unknown(self.clean(&name, MAX_EXCERPT_CHARS))
                    }
                    known => known,
                };
                let name = String::from(kind.clone());
                let text = ServiceErrorText { kind: &kind, code: None, message: &message };
                let is_gone = container.is_some_and(|container| text.is_container_gone(container));
                let message = format!("the service reported an error in mid-stream ({name}): {message}");
                if is_gone {
                    return AttemptError::new(ModelErrorKind::ContainerGone, message, RetryDecision::GiveUp);
                }
                let is_limit = matches!(kind, ApiErrorKind::RateLimit | ApiErrorKind::Overloaded);
                let error = ModelError::new(ModelErrorKind::Api(kind), message);
                let next = match error.is_retryable() {
                    true if is_limit => RetryDecision::RetryWhenAdmitted,
                    true => RetryDecision::Retry,
                    false => RetryDecision::GiveUp,
                };
                AttemptError { error, next, effects: PossibleEffects::Possible }
            }
        }
    }

    /// The error of a failed connection.
    pub(crate) fn transport(&self, error: &reqwest::Error) -> AttemptError {
        let mut reason = String::new();
        let mut source: Option<&dyn Error> = Some(error);
        while let Some(error) = source {
            let text = error.to_string();
            if !reason.ends_with(&text) {
                reason.push_str(if reason.is_empty() { "" } else { ": " });
                reason.push_str(&text);
            }
            source = error.source();
        }
        let reason = self.clean(&reason, MAX_MESSAGE_CHARS);
        let message = if error.is_connect() && error.is_timeout() {
            format!("no connection to the service in time: {reason}")
        } else if error.is_connect() {
            format!("no connection to the service; check the base URL, the network and the proxy: {reason}")
        } else {
            format!("the connection to the service broke: {reason}")
        };
        let next = if error.is_builder() { RetryDecision::GiveUp } else { RetryDecision::Retry };
        let effects = if error.is_connect() || error.is_builder() {
            PossibleEffects::None
        } else {
            PossibleEffects::Possible
        };
        AttemptError { effects, ..AttemptError::new(ModelErrorKind::Connection, message, next) }
    }

    /// The error of a successful status with an unexpected body.
    pub(crate) fn unexpected_response(&self, what: &str, body: &[u8]) -> AttemptError {
        // `what` may quote the body.
        let what = self.clean(what, MAX_MESSAGE_CHARS);
        let excerpt = self.excerpt(body);
        let message = format!("{what}; is the base URL that of the Messages API? It begins: {excerpt}");
        AttemptError::new(ModelErrorKind::Protocol, message, RetryDecision::GiveUp)
    }

    /// The beginning of a body as one line of text, without HTML tags.
    fn excerpt(&self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body);
        let mut plain = String::new();
        let mut is_tag = false;
        for character in text.chars() {
            match character {
                '<' => is_tag = true,
                '>' if is_tag => {
                    is_tag = false;
                    plain.push(' ');
                }
                _ if is_tag => {}
                _ => plain.push(character),
            }
        }
        let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.is_empty() { "(no text)".to_owned() } else { self.clean(&line, MAX_EXCERPT_CHARS) }
    }

    /// Redacts a text, removes control characters and truncates it.
    pub(crate) fn clean(&self, text: &str, max_chars: usize) -> String {
        // Redact first: half a key would not be recognised.
        let text = self.redactor.redact(text);
        let mut cut: String =
            text.chars().filter(|character| !character.is_control()).take(max_chars).collect();
        if text.chars().nth(max_chars).is_some() {
            cut.push('…');
        }
        cut
    }
}

/// The error of a timeout.
pub(crate) fn timeout(message: String, next: RetryDecision) -> AttemptError {
    AttemptError::new(ModelErrorKind::Timeout, message, next)
}

/// The error of a call that the rate limiter did not admit.
pub(crate) fn not_admitted(wait: Duration) -> ModelError {
    let message = if wait.is_zero() {
        "the key was rate limited, and the calls that waited before this one have not been answered in the time that \
         it may wait"
            .to_owned()
    } else {
        let seconds = wait.as_secs_f64();
        format!("the key is rate limited for another {seconds:.1} s, longer than this call may wait")
    };
    ModelError {
        retry_after: (!wait.is_zero()).then_some(wait),
        ..ModelError::new(ModelErrorKind::Api(ApiErrorKind::RateLimit), message)
    }
}

/// The error type of a status without a readable body.
fn kind_of_status(status: u16) -> ApiErrorKind {
    match status {
        401 => ApiErrorKind::Authentication,
        402 => ApiErrorKind::Billing,
        403 => ApiErrorKind::Permission,
        404 => ApiErrorKind::NotFound,
        408 | 504 => ApiErrorKind::Timeout,
        409 => ApiErrorKind::Unknown("conflict_error".to_owned()),
        413 => ApiErrorKind::Unknown("request_too_large".to_owned()),
        429 => ApiErrorKind::RateLimit,
        529 => ApiErrorKind::Overloaded,
        400..=499 => ApiErrorKind::InvalidRequest,
        500..=599 => ApiErrorKind::Api,
        other => ApiErrorKind::Unknown(format!("status_{other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_by_the_limiter_names_a_wait_only_where_there_is_one() {
        let closed = not_admitted(Duration::from_millis(2500));
        assert_eq!(closed.retry_after, Some(Duration::from_millis(2500)));
        assert!(closed.message.contains("another 2.5 s"), "{closed}");
        let queued = not_admitted(Duration::ZERO);
        assert_eq!(queued.retry_after, None);
        assert!(
            queued.message.contains("have not been answered") && !queued.message.contains('0'),
            "{queued}"
        );
    }
}
