//! [`FakeError`]: an error as OpenAI writes it.

use conjure_conversation::ApiErrorKind;
use conjure_model_http::fake::WireError;
use serde_json::{Value, json};

/// An error, before or within a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeError {
    status: u16,
    kind: String,
    code: Option<String>,
    message: String,
}

impl FakeError {
    /// Creates an error of this type, with the service's status for it.
    #[must_use]
    pub fn new(kind: &ApiErrorKind, message: impl Into<String>) -> Self {
        let (status, name, code) = match kind {
            ApiErrorKind::InvalidRequest => (400, "invalid_request_error", None),
            ApiErrorKind::Authentication => (401, "invalid_request_error", Some("invalid_api_key")),
            ApiErrorKind::Billing => (429, "insufficient_quota", Some("insufficient_quota")),
            ApiErrorKind::Permission => (403, "invalid_request_error", None),
            ApiErrorKind::NotFound => (404, "invalid_request_error", Some("model_not_found")),
            ApiErrorKind::RateLimit => (429, "requests", Some("rate_limit_exceeded")),
            ApiErrorKind::Timeout => (408, "timeout", None),
            ApiErrorKind::Overloaded => (503, "server_error", Some("server_is_overloaded")),
            ApiErrorKind::Api => (500, "server_error", None),
            ApiErrorKind::Unknown(name) => (400, name.as_str(), None),
        };
        Self { status, kind: name.to_owned(), code: code.map(str::to_owned), message: message.into() }
    }

    /// Creates the error for a request that the service refuses.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(&ApiErrorKind::InvalidRequest, message)
    }

    /// The same error with another status.
    #[must_use]
    pub const fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// The same error with this code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// The JSON of the body.
    pub(super) fn body(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": null, "code": self.code}})
    }

    /// The error as an event in a stream of the Responses API.
    pub(super) fn event(&self, sequence_number: usize) -> Value {
        json!({"type": "error", "sequence_number": sequence_number, "code": self.code.as_deref().unwrap_or(&self.kind),
            "message": self.message, "param": null})
    }
}

impl WireError for FakeError {
    fn from_kind(kind: ApiErrorKind, message: String) -> Self {
        Self::new(&kind, message)
    }

    fn http_status(&self) -> u16 {
        self.status
    }

    fn json(&self, _request_id: &str) -> String {
        self.body().to_string()
    }
}
