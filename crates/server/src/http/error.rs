//! What a handler refuses, and the API's body for it.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// A refusal with the API's status, type and message.
///
/// As a response it has no body yet: only `request_scope` knows the request's id, which the body contains.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
    details: Option<Value>,
    retry_after: Option<Duration>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), details: None, retry_after: None }
    }

    /// 400: the request is wrong, and stays wrong.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// 401: no key, or a wrong one.
    #[must_use]
    pub fn authentication(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "authentication_error", message)
    }

    /// 403: the key may not do this.
    #[must_use]
    pub fn permission(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "permission_error", message)
    }

    /// 404: there is no such thing, or it belongs to another tenant.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found_error", message)
    }

    /// 405: the path has no such method.
    #[must_use]
    pub fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
    }

    /// 409: the request does not fit the state.
    #[must_use]
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "invalid_request_error", message)
    }

    /// 413: the body is too large.
    #[must_use]
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
    }

    /// 429: a limit of the tenant or the key was reached.
    #[must_use]
    pub fn rate_limited(message: impl Into<String>, retry_after: Duration) -> Self {
        Self {
            retry_after: Some(retry_after),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message)
        }
    }

    /// 500: a defect, or a part that failed.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "api_error", message)
    }

    /// 529: the server has too much to do.
    #[must_use]
    pub fn overloaded(message: impl Into<String>, retry_after: Duration) -> Self {
        let status = StatusCode::from_u16(529).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        Self { retry_after: Some(retry_after), ..Self::new(status, "overloaded_error", message) }
    }

    /// Adds the object `details`.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The JSON body for the request of this id.
    #[must_use]
    pub fn body(&self, request_id: &str) -> Value {
        let mut error = json!({"type": self.kind, "message": self.message});
        if let (Some(details), Some(error)) = (&self.details, error.as_object_mut()) {
            error.insert("details".to_owned(), details.clone());
        }
        json!({"type": "error", "error": error, "request_id": request_id})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        } else if self.status.is_client_error() {
            // SDKs would repeat a 409 otherwise.
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response.extensions_mut().insert(self);
        response
    }
}
