//! [`ErrorBuilder`]: turns errors of the connection and of the service into [`ModelError`]s, without secrets or HTML.

use std::error::Error;

use conjure_base::{Redactor, Timestamp};
use conjure_conversation::{ApiErrorKind, ModelError, ModelErrorKind};
use reqwest::header::HeaderMap;

use crate::calls::attempt_error::{AttemptError, PossibleEffects, RetryDecision};
use crate::calls::http_call::HttpCall;
use crate::calls::service_error::{ServiceError, error_kind_of_status};
use crate::calls::wire::Wire;
use crate::connection::retry_policy::{RetryAdvice, is_limit, retry_after};
use crate::stream::decoder::StreamError;

/// The maximum length of a service message, in characters.
const MAX_MESSAGE_CHARS: usize = 2_000;
/// The maximum length of an excerpt of a body that is not JSON, and of an error code, in characters.
const MAX_EXCERPT_CHARS: usize = 200;
/// The maximum length of a request id, in characters.
const MAX_REQUEST_ID_CHARS: usize = 200;

/// Builds errors and redacts their messages.
pub struct ErrorBuilder {
    redactor: Redactor,
}

impl ErrorBuilder {
    /// Creates a builder that removes the secrets of this redactor.
    #[must_use]
    pub const fn new(redactor: Redactor) -> Self {
        Self { redactor }
    }

    /// The request id in these headers. The first of these names that has one counts.
    #[must_use]
    pub fn request_id(&self, headers: &HeaderMap, names: &[&'static str]) -> Option<String> {
        let id = names.iter().find_map(|name| headers.get(*name))?.to_str().ok()?;
        Some(self.clean(id, MAX_REQUEST_ID_CHARS))
    }

    /// The error in this response, with its texts redacted. `None` if the wire finds no error.
    pub fn read_error<W: Wire>(
        &self,
        wire: &W,
        status: u16,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Option<ServiceError> {
        let mut error = self.clean_error(wire.read_error(status, headers, body)?);
        error.request_id = self.request_id(headers, wire.request_id_headers()).or(error.request_id);
        Some(error)
    }

    /// The error of a response with an error status. A body that the wire cannot read is quoted.
    pub fn service_error<W: Wire>(
        &self,
        wire: &W,
        status: u16,
        headers: &HeaderMap,
        body: &[u8],
    ) -> ServiceError {
        self.read_error(wire, status, headers, body).unwrap_or_else(|| {
            let hint = match status {
                300..=399 => {
                    format!("; the address redirects: set the base URL of {} itself", wire.api_name())
                }
                404 | 405 => format!("; is the base URL that of {}?", wire.api_name()),
                _ => String::new(),
            };
            let message = format!("{}{hint}", self.excerpt(body));
            let id = self.request_id(headers, wire.request_id_headers());
            ServiceError::new(error_kind_of_status(status), message).with_request_id(id)
        })
    }

    /// The error of an attempt whose response has an error status.
    pub fn status<W: Wire>(
        &self,
        wire: &W,
        call: &HttpCall,
        status: u16,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> AttemptError {
        let error = self.service_error(wire, status, headers, body);
        let kind = wire.error_kind(call, &error);
        let is_final = !matches!(kind, ModelErrorKind::Api(_));
        let advice = error.retry.or(RetryAdvice::from_headers(headers));
        let next = match advice.should_retry(status) {
            _ if is_final => RetryDecision::GiveUp,
            false => RetryDecision::GiveUp,
            true if is_limit(status) => RetryDecision::RetryWhenAdmitted,
            true => RetryDecision::Retry,
        };
        let effects = if status >= 500 && !is_limit(status) {
            PossibleEffects::Possible
        } else {
            PossibleEffects::None
        };
        let name = String::from(error.kind.clone());
        let error = ModelError {
            kind,
            message: format!("the service answered {status} ({name}): {}", error.message),
            retry_after: retry_after(headers, now).or(error.retry_after),
            request_id: error.request_id,
        };
        AttemptError { error, next, effects }
    }

    /// The error of an attempt whose response has a successful status and reports an error in its body.
    pub fn successful_status<W: Wire>(
        &self,
        wire: &W,
        call: &HttpCall,
        status: u16,
        error: ServiceError,
    ) -> AttemptError {
        self.reported(wire, call, error, &format!("the service answered {status} with an error"))
    }

    /// The error of an invalid or failed stream. The caller checks whether output was shown.
    pub fn stream<W: Wire>(&self, wire: &W, call: &HttpCall, error: StreamError) -> AttemptError {
        match error {
            StreamError::Service(error) => {
                let error = self.clean_error(*error);
                self.reported(wire, call, error, "the service reported an error in mid-stream")
            }
            StreamError::Protocol(reason) => {
                let reason = self.clean(&reason, MAX_MESSAGE_CHARS);
                let message = format!("the stream breaks the protocol: {reason}");
                AttemptError::new(ModelErrorKind::Protocol, message, RetryDecision::GiveUp)
            }
            error @ (StreamError::Sse(_) | StreamError::TooMany { .. }) => {
                AttemptError::new(ModelErrorKind::Protocol, error.to_string(), RetryDecision::GiveUp)
            }
        }
    }

    /// An error that came with a successful status. Its kind and its retry advice decide about a retry.
    fn reported<W: Wire>(
        &self,
        wire: &W,
        call: &HttpCall,
        error: ServiceError,
        description: &str,
    ) -> AttemptError {
        let name = String::from(error.kind.clone());
        let message = format!("{description} ({name}): {}", error.message);
        let kind = wire.error_kind(call, &error);
        if !matches!(kind, ModelErrorKind::Api(_)) {
            return AttemptError::new(kind, message, RetryDecision::GiveUp);
        }
        let is_limit = error.is_limit();
        let model_error =
            ModelError { kind, message, retry_after: error.retry_after, request_id: error.request_id };
        let is_retried = match error.retry {
            RetryAdvice::Retry => true,
            RetryAdvice::GiveUp => false,
            RetryAdvice::ByStatus => model_error.is_retryable(),
        };
        let next = match is_retried {
            true if is_limit => RetryDecision::RetryWhenAdmitted,
            true => RetryDecision::Retry,
            false => RetryDecision::GiveUp,
        };
        AttemptError { error: model_error, next, effects: PossibleEffects::Possible }
    }

    /// The error of a failed connection.
    #[must_use]
    pub fn transport(&self, error: &reqwest::Error) -> AttemptError {
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

    /// The error of a successful status with an unexpected body. `api` is the name of the API.
    #[must_use]
    pub fn unexpected_response(&self, description: &str, api: &str, body: &[u8]) -> AttemptError {
        // `description` may quote the body, so it is cleaned too.
        let description = self.clean(description, MAX_MESSAGE_CHARS);
        let excerpt = self.excerpt(body);
        let message = format!("{description}; is the base URL that of {api}? It begins: {excerpt}");
        AttemptError::new(ModelErrorKind::Protocol, message, RetryDecision::GiveUp)
    }

    /// The beginning of a body as one line of text, without HTML tags.
    pub(crate) fn excerpt(&self, body: &[u8]) -> String {
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

    fn clean_error(&self, error: ServiceError) -> ServiceError {
        ServiceError {
            kind: match error.kind {
                ApiErrorKind::Unknown(name) => ApiErrorKind::Unknown(self.clean(&name, MAX_EXCERPT_CHARS)),
                known => known,
            },
            code: error.code.map(|code| self.clean(&code, MAX_EXCERPT_CHARS)),
            message: self.clean(&error.message, MAX_MESSAGE_CHARS),
            request_id: error.request_id.map(|id| self.clean(&id, MAX_REQUEST_ID_CHARS)),
            ..error
        }
    }

    /// Redacts a text, removes control characters and truncates it.
    #[must_use]
    pub fn clean(&self, text: &str, max_chars: usize) -> String {
        // Redaction comes first, because a truncated key would not be recognised.
        let text = self.redactor.redact(text);
        let mut cut: String =
            text.chars().filter(|character| !character.is_control()).take(max_chars).collect();
        if text.chars().nth(max_chars).is_some() {
            cut.push('…');
        }
        cut
    }
}

impl std::fmt::Debug for ErrorBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ErrorBuilder")
    }
}
