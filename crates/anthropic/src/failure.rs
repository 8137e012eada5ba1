//! From what went wrong on the wire to one typed error that shows no secret and no page of HTML.

use std::error::Error;
use std::time::Duration;

use conjure_base::{Redactor, Timestamp};
use conjure_conversation::{ApiErrorKind, ModelError, ModelErrorKind};
use reqwest::header::HeaderMap;
use serde::Deserialize;

use crate::accumulate::StreamError;
use crate::gone::SaidError;
use crate::retry::{Advice, is_limit, retry_after};

/// How much of a service's message is kept, in characters.
const LONGEST_MESSAGE: usize = 2_000;
/// How much of a body that is no JSON is shown, in characters.
const LONGEST_EXCERPT: usize = 200;
/// How long a `request-id` may be.
const LONGEST_REQUEST_ID: usize = 200;

/// A failed attempt, and whether another one may be made.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: ModelError,
    pub(crate) next: Next,
    pub(crate) effects: Effects,
}

/// Whether the service may have begun with what a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effects {
    /// It has not: there was no connection, or it has refused the request.
    None,
    /// Nobody knows.
    Possible,
}

/// What may follow a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another attempt, after the wait that the service asked for, or our own.
    Retry,
    /// The same, but the limiter of the key keeps the wait.
    RetryWhenAdmitted,
    /// Nothing.
    GiveUp,
}

impl Failure {
    pub(crate) fn new(kind: ModelErrorKind, message: impl Into<String>, next: Next) -> Self {
        Self { error: ModelError::new(kind, message), next, effects: Effects::Possible }
    }
}

/// What an error of the service says, without secrets.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) kind: ApiErrorKind,
    pub(crate) code: Option<String>,
    pub(crate) message: String,
    pub(crate) request_id: Option<String>,
}

/// What every failure is made with.
#[derive(Debug)]
pub(crate) struct Reporter {
    redactor: Redactor,
}

impl Reporter {
    pub(crate) fn new(key: &str) -> Self {
        Self { redactor: Redactor::new([("ANTHROPIC_API_KEY", key)]) }
    }

    /// The `request-id` of these headers.
    pub(crate) fn request_id(&self, headers: &HeaderMap) -> Option<String> {
        let id = headers.get("request-id")?.to_str().ok()?;
        Some(self.clean(id, LONGEST_REQUEST_ID))
    }

    /// What an error of the service says: its type, its code, its words.
    pub(crate) fn said(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> Said {
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
            Ok(Body { error, request_id: of_body }) => Said {
                kind: ApiErrorKind::from(self.clean(&error.kind, LONGEST_EXCERPT)),
                code: error.details["error_code"].as_str().map(|code| self.clean(code, LONGEST_EXCERPT)),
                message: self.clean(&error.message, LONGEST_MESSAGE),
                request_id: request_id.or_else(|| of_body.map(|id| self.clean(&id, LONGEST_REQUEST_ID))),
            },
            Err(_) => {
                Said { kind: kind_of_status(status), code: None, message: self.excerpt(body), request_id }
            }
        }
    }

    /// An answer that is not a success. `container`: the one that the request named.
    pub(crate) fn status(
        &self,
        status: u16,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
        container: Option<&str>,
    ) -> Failure {
        let Said { kind, code, message, request_id } = self.said(status, headers, body);
        let said = SaidError { kind: &kind, code: code.as_deref(), message: &message };
        let is_gone = container.is_some_and(|container| said.is_gone(container));
        let name = String::from(kind.clone());
        let error = ModelError {
            kind: if is_gone { ModelErrorKind::ContainerGone } else { ModelErrorKind::Api(kind) },
            message: format!("the service answered {status} ({name}): {message}"),
            retry_after: retry_after(headers, now),
            request_id,
        };
        let next = match Advice::of(headers).applied_to(status) {
            _ if is_gone => Next::GiveUp,
            false => Next::GiveUp,
            true if is_limit(status) => Next::RetryWhenAdmitted,
            true => Next::Retry,
        };
        let effects = if status >= 500 && !is_limit(status) { Effects::Possible } else { Effects::None };
        Failure { error, next, effects }
    }

    /// A stream that is not an answer. `shown` decides whether it may be repeated, not this.
    /// `container`: the one that the request named.
    pub(crate) fn stream(&self, error: StreamError, container: Option<&str>) -> Failure {
        match error {
            StreamError::Sse(error) => {
                Failure::new(ModelErrorKind::Protocol, error.to_string(), Next::GiveUp)
            }
            error @ StreamError::TooMany { .. } => {
                Failure::new(ModelErrorKind::Protocol, error.to_string(), Next::GiveUp)
            }
            StreamError::Protocol(reason) => {
                let reason = self.clean(&reason, LONGEST_MESSAGE);
                let message = format!("the stream breaks the protocol: {reason}");
                Failure::new(ModelErrorKind::Protocol, message, Next::GiveUp)
            }
            StreamError::Service { kind, message } => {
                let message = self.clean(&message, LONGEST_MESSAGE);
                let kind = match kind {
                    ApiErrorKind::Unknown(name) => ApiErrorKind::Unknown(self.clean(&name, LONGEST_EXCERPT)),
                    known => known,
                };
                let name = String::from(kind.clone());
                let said = SaidError { kind: &kind, code: None, message: &message };
                let is_gone = container.is_some_and(|container| said.is_gone(container));
                let message = format!("the service reported an error in mid-stream ({name}): {message}");
                if is_gone {
                    return Failure::new(ModelErrorKind::ContainerGone, message, Next::GiveUp);
                }
                let is_limit = matches!(kind, ApiErrorKind::RateLimit | ApiErrorKind::Overloaded);
                let error = ModelError::new(ModelErrorKind::Api(kind), message);
                let next = match error.is_retryable() {
                    true if is_limit => Next::RetryWhenAdmitted,
                    true => Next::Retry,
                    false => Next::GiveUp,
                };
                Failure { error, next, effects: Effects::Possible }
            }
        }
    }

    /// No answer, or none that goes on.
    pub(crate) fn transport(&self, error: &reqwest::Error) -> Failure {
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
        let reason = self.clean(&reason, LONGEST_MESSAGE);
        let message = if error.is_connect() && error.is_timeout() {
            format!("no connection to the service in time: {reason}")
        } else if error.is_connect() {
            format!("no connection to the service; check the base URL, the network and the proxy: {reason}")
        } else {
            format!("the connection to the service broke: {reason}")
        };
        let next = if error.is_builder() { Next::GiveUp } else { Next::Retry };
        let effects =
            if error.is_connect() || error.is_builder() { Effects::None } else { Effects::Possible };
        Failure { effects, ..Failure::new(ModelErrorKind::Connection, message, next) }
    }

    /// A success that holds something else than an answer.
    pub(crate) fn not_an_answer(&self, what: &str, body: &[u8]) -> Failure {
        // What is said of the body may quote it.
        let what = self.clean(what, LONGEST_MESSAGE);
        let excerpt = self.excerpt(body);
        let message = format!("{what}; is the base URL that of the Messages API? It begins: {excerpt}");
        Failure::new(ModelErrorKind::Protocol, message, Next::GiveUp)
    }

    /// The beginning of a body, as one line of text.
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
        if line.is_empty() { "(no text)".to_owned() } else { self.clean(&line, LONGEST_EXCERPT) }
    }

    /// Without secrets and control characters, and cut after so many characters.
    pub(crate) fn clean(&self, text: &str, longest: usize) -> String {
        // Redacted before it is cut: half a key would not be recognised.
        let text = self.redactor.redact(text);
        let mut cut: String =
            text.chars().filter(|character| !character.is_control()).take(longest).collect();
        if text.chars().nth(longest).is_some() {
            cut.push('…');
        }
        cut
    }
}

/// A wait that ended without an answer.
pub(crate) fn timeout(message: String, next: Next) -> Failure {
    Failure::new(ModelErrorKind::Timeout, message, next)
}

/// The failure of a call that the limiter did not let through.
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

/// The error type that a status without a readable body stands for.
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
