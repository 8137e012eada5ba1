//! An error of the service: its type, its status and its body.

use conjure_conversation::ApiErrorKind;

use conjure_model_http::fake::WireError;
use conjure_model_http::quoted;

/// An error of the service, before or within a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    status: u16,
    kind: String,
    message: String,
}

impl Refusal {
    /// Creates an error of this type, with the service's status for it.
    #[must_use]
    pub fn new(kind: ApiErrorKind, message: impl Into<String>) -> Self {
        let status = match &kind {
            ApiErrorKind::InvalidRequest | ApiErrorKind::Unknown(_) => 400,
            ApiErrorKind::Authentication => 401,
            ApiErrorKind::Billing => 402,
            ApiErrorKind::Permission => 403,
            ApiErrorKind::NotFound => 404,
            ApiErrorKind::RateLimit => 429,
            ApiErrorKind::Api => 500,
            ApiErrorKind::Timeout => 504,
            ApiErrorKind::Overloaded => 529,
        };
        Self { status, kind: kind.into(), message: message.into() }
    }

    /// The same error with another status.
    #[must_use]
    pub const fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ApiErrorKind::InvalidRequest, message)
    }

    /// The error for a body that exceeds the service's limit.
    pub(super) fn too_large() -> Self {
        let kind = ApiErrorKind::Unknown("request_too_large".to_owned());
        Self::new(kind, "Request exceeds the maximum size").with_status(413)
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// The JSON of the body, and of the `error` event.
    pub(super) fn body(&self, request_id: &str) -> String {
        format!(
            "{{\"type\":\"error\",\"error\":{{\"type\":{},\"message\":{}}},\"request_id\":{}}}",
            quoted(&self.kind),
            quoted(&self.message),
            quoted(request_id),
        )
    }
}

impl WireError for Refusal {
    fn from_kind(kind: ApiErrorKind, message: String) -> Self {
        Self::new(kind, message)
    }

    fn http_status(&self) -> u16 {
        self.status
    }

    fn json(&self, request_id: &str) -> String {
        self.body(request_id)
    }
}
