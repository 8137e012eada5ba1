//! The bodies of error responses.

use serde::{Deserialize, Serialize};

/// The body of an error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "error")]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorObject,
    /// The id of the request, as in the `request-id` header.
    pub request_id: Option<String>,
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// The category of the error.
    pub r#type: String,
    /// A message for people.
    pub message: String,
    /// Details for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<ErrorDetails>,
}

/// The part of an error that programs may rely on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetails {
    /// A stable name for the cause.
    pub error_code: String,
}

/// The kinds of errors, each with the status of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is invalid.
    InvalidRequest,
    /// The API key is missing or unknown.
    Authentication,
    /// The API key has no permission for this.
    Permission,
    /// The object does not exist, or belongs to another tenant.
    NotFound,
    /// The request conflicts with the state of its object.
    Conflict,
    /// The body is too large.
    TooLarge,
    /// The client sends too many requests.
    RateLimit,
    /// The server failed.
    Internal,
    /// The server took too long.
    Timeout,
    /// The server is overloaded.
    Overloaded,
}

impl ErrorKind {
    /// The status of the response.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::InvalidRequest => 400,
            Self::Authentication => 401,
            Self::Permission => 403,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::TooLarge => 413,
            Self::RateLimit => 429,
            Self::Internal => 500,
            Self::Timeout => 504,
            Self::Overloaded => 529,
        }
    }

    /// The value of `error.type`.
    #[must_use]
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::InvalidRequest | Self::Conflict => "invalid_request_error",
            Self::Authentication => "authentication_error",
            Self::Permission => "permission_error",
            Self::NotFound => "not_found_error",
            Self::TooLarge => "request_too_large",
            Self::RateLimit => "rate_limit_error",
            Self::Internal => "api_error",
            Self::Timeout => "timeout_error",
            Self::Overloaded => "overloaded_error",
        }
    }
}

impl ErrorBody {
    /// Creates the body for an error.
    pub fn new(
        kind: ErrorKind,
        message: impl Into<String>,
        code: Option<&str>,
        request_id: Option<String>,
    ) -> Self {
        Self {
            error: ErrorObject {
                r#type: kind.type_name().to_owned(),
                message: message.into(),
                details: code.map(|code| ErrorDetails { error_code: code.to_owned() }),
            },
            request_id,
        }
    }
}
