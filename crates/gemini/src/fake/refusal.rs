//! An error of the service: its status, the name of its status, and its body.

use std::time::Duration;

use conjure_conversation::ApiErrorKind;
use conjure_model_http::fake::WireError;
use serde_json::{Value, json};

/// An error of the service, before or within a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    code: u16,
    name: &'static str,
    message: String,
    /// The field `details`, if there are any.
    details: Vec<Value>,
}

impl Refusal {
    /// Creates an error of this type, with the service's status for it. A wrong key is an invalid argument.
    #[must_use]
    pub fn new(kind: ApiErrorKind, message: impl Into<String>) -> Self {
        let (code, name) = match &kind {
            ApiErrorKind::InvalidRequest | ApiErrorKind::Authentication | ApiErrorKind::Unknown(_) => {
                (400, "INVALID_ARGUMENT")
            }
            ApiErrorKind::Billing => (400, "FAILED_PRECONDITION"),
            ApiErrorKind::Permission => (403, "PERMISSION_DENIED"),
            ApiErrorKind::NotFound => (404, "NOT_FOUND"),
            ApiErrorKind::RateLimit => (429, "RESOURCE_EXHAUSTED"),
            ApiErrorKind::Api => (500, "INTERNAL"),
            ApiErrorKind::Overloaded => (503, "UNAVAILABLE"),
            ApiErrorKind::Timeout => (504, "DEADLINE_EXCEEDED"),
        };
        let details = match kind {
            ApiErrorKind::Authentication => vec![json!({
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "API_KEY_INVALID",
                "domain": "googleapis.com",
                "metadata": {"service": "generativelanguage.googleapis.com"},
            })],
            _ => Vec::new(),
        };
        Self { code, name, message: message.into(), details }
    }

    /// The same error with the time to wait.
    #[must_use]
    pub fn with_retry_delay(mut self, delay: Duration) -> Self {
        self.details.push(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": format!("{}s", delay.as_secs_f64()),
        }));
        self
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ApiErrorKind::InvalidRequest, message)
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.code
    }

    /// The JSON of the body, and of a piece of a stream.
    pub(super) fn body(&self) -> String {
        let mut error = json!({"code": self.code, "message": self.message, "status": self.name});
        if !self.details.is_empty() {
            error["details"] = Value::from(self.details.clone());
        }
        json!({ "error": error }).to_string()
    }
}

impl WireError for Refusal {
    fn from_kind(kind: ApiErrorKind, message: String) -> Self {
        Self::new(kind, message)
    }

    fn http_status(&self) -> u16 {
        self.code
    }

    fn json(&self, _request_id: &str) -> String {
        self.body()
    }

    /// The service puts the time to wait into the error.
    fn with_wait(self, wait: Duration) -> (Self, Vec<(String, String)>) {
        (self.with_retry_delay(wait), Vec::new())
    }
}
