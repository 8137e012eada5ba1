//! The error of a handler, with the API's error body.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use conjure_api::{ErrorBody, ErrorKind, RequestId};

/// An error with the API's status, type and message.
///
/// As a response it has no body yet. The body contains the request's id, which only `request_scope` knows.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    status: StatusCode,
    kind: ErrorKind,
    message: String,
    code: Option<&'static str>,
    retry_after: Option<Duration>,
    /// Whether the request may have had an effect.
    is_outcome_unknown: bool,
}

impl ApiError {
    /// An error of this kind, with the kind's status.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let status = StatusCode::from_u16(kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self {
            status,
            kind,
            message: message.into(),
            code: None,
            retry_after: None,
            is_outcome_unknown: false,
        }
    }

    /// 400: the request is invalid, and a retry will not help.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, message)
    }

    /// 401: the key is missing or not valid.
    #[must_use]
    pub fn authentication(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Authentication, message)
    }

    /// 403: the key does not permit this.
    #[must_use]
    pub fn permission(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Permission, message)
    }

    /// 404: the object does not exist, or belongs to another tenant.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// 405: the path does not support this method.
    #[must_use]
    pub fn method_not_allowed(message: impl Into<String>) -> Self {
        Self { status: StatusCode::METHOD_NOT_ALLOWED, ..Self::invalid(message) }
    }

    /// 409: the request conflicts with the current state.
    #[must_use]
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    /// 409: another request changes the same object at the moment. The SDKs wait and retry.
    #[must_use]
    pub fn busy(message: impl Into<String>) -> Self {
        Self { retry_after: Some(Duration::from_secs(1)), ..Self::conflict(message) }
    }

    /// 413: the body is too large.
    #[must_use]
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::TooLarge, message)
    }

    /// 429: a limit of the tenant or the key was reached.
    #[must_use]
    pub fn rate_limited(message: impl Into<String>, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(ErrorKind::RateLimit, message) }
    }

    /// 500: a defect, or the failure of a component.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// 529: the server is overloaded.
    #[must_use]
    pub fn overloaded(message: impl Into<String>, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(ErrorKind::Overloaded, message) }
    }

    /// Adds the API's stable code for the cause.
    #[must_use]
    pub fn with_code(self, code: Option<&'static str>) -> Self {
        Self { code, ..self }
    }

    /// Marks the error of a request that may have had an effect. Clients are told not to retry it.
    #[must_use]
    pub fn with_unknown_outcome(self) -> Self {
        Self { is_outcome_unknown: true, retry_after: None, ..self }
    }

    /// Marks the error of a request whose effects were undone.
    #[must_use]
    pub fn with_known_outcome(self) -> Self {
        Self { is_outcome_unknown: false, ..self }
    }

    /// Whether the request may have had an effect.
    #[must_use]
    pub const fn is_outcome_unknown(&self) -> bool {
        self.is_outcome_unknown
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The error body for the request with this id.
    #[must_use]
    pub fn body(&self, request: Option<RequestId>) -> ErrorBody {
        let request = request.map(|id| id.to_string());
        ErrorBody::new(self.kind, self.message.as_str(), self.code, request)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        } else if self.status.is_client_error() || self.is_outcome_unknown {
            // Without this header, SDKs would retry a 409 or a 500.
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response.extensions_mut().insert(self);
        response
    }
}
