//! [`ServiceError`]: an error that the service reported, as a response or inside a stream.

use std::time::Duration;

use conjure_conversation::ApiErrorKind;

use crate::connection::retry_policy::RetryAdvice;

/// An error as the service wrote it. The client redacts and shortens its texts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceError {
    /// The type: the one of the Messages API with the same meaning.
    pub kind: ApiErrorKind,
    /// The service's own code for the cause, if it has one.
    pub code: Option<String>,
    /// The service's message.
    pub message: String,
    /// The service's advice about a retry, in its body or by the kind of error.
    pub retry: RetryAdvice,
    /// The wait that the body asks for. The client reads a `retry-after` header too, and the header wins.
    pub retry_after: Option<Duration>,
    /// The request id in the body. The client reads the header too, and the header wins.
    pub request_id: Option<String>,
}

impl ServiceError {
    /// Creates an error with a type and a message only.
    #[must_use]
    pub fn new(kind: ApiErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            code: None,
            message: message.into(),
            retry: RetryAdvice::ByStatus,
            retry_after: None,
            request_id: None,
        }
    }

    /// Sets the service's own code for the cause.
    #[must_use]
    pub fn with_code(mut self, code: Option<String>) -> Self {
        self.code = code;
        self
    }

    /// Sets the advice about retries.
    #[must_use]
    pub const fn with_retry(mut self, retry: RetryAdvice) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the wait that the body asks for.
    #[must_use]
    pub const fn with_retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    /// Sets the request id that the body names.
    #[must_use]
    pub fn with_request_id(mut self, id: Option<String>) -> Self {
        self.request_id = id;
        self
    }

    /// Whether all calls of the key should wait, because the key is rate limited or the service is overloaded.
    #[must_use]
    pub const fn is_limit(&self) -> bool {
        matches!(self.kind, ApiErrorKind::RateLimit | ApiErrorKind::Overloaded)
    }
}

/// The type of an error by its HTTP status, for a body that does not name one.
#[must_use]
pub fn error_kind_of_status(status: u16) -> ApiErrorKind {
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
