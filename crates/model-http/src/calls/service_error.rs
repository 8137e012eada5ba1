//! [`ServiceError`]: an error that the service reported, in a response of its own or inside a stream.

use std::time::Duration;

use conjure_conversation::ApiErrorKind;

use crate::connection::retry::RetryAdvice;

/// An error as the service wrote it. The client redacts and shortens its texts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceError {
    /// Its type, as the type of the Messages API that means the same.
    pub kind: ApiErrorKind,
    /// The service's own code of the cause, if it has one.
    pub code: Option<String>,
    /// What the service says.
    pub message: String,
    /// Whether the service, or this kind of error, forbids or allows a retry.
    pub retry: RetryAdvice,
    /// The wait that the body asks for. A `retry-after` header is read by the client, and wins.
    pub retry_after: Option<Duration>,
    /// The request id in the body. A header is read by the client, and wins.
    pub request_id: Option<String>,
}

impl ServiceError {
    /// An error of this type, with no more than a message.
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

    /// Sets the service's own code of the cause.
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

    /// Whether all calls of the key should wait: the key is rate limited, or the service is overloaded.
    #[must_use]
    pub const fn is_limit(&self) -> bool {
        matches!(self.kind, ApiErrorKind::RateLimit | ApiErrorKind::Overloaded)
    }
}

/// The type of an error by its HTTP status, for a body that says no more.
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
