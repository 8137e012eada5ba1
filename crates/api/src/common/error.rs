//! The bodies of error responses.

use serde::{Deserialize, Serialize};

use crate::RequestError;

/// The body of an error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "error")]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorObject,
    /// The request, as its `request-id` header has it.
    pub request_id: Option<String>,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// The broad category.
    pub r#type: String,
    /// Words for people.
    pub message: String,
    /// More for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<ErrorDetails>,
}

/// What programs may go by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetails {
    /// A stable name of the cause.
    pub error_code: String,
}

/// The kinds of errors, with the status of their responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is wrong.
    InvalidRequest,
    /// The key is missing or unknown.
    Authentication,
    /// The key may not do this.
    Permission,
    /// There is no such thing, or it is another tenant's.
    NotFound,
    /// The request conflicts with the state of what it is about.
    Conflict,
    /// The body is too large.
    TooLarge,
    /// Too many requests.
    RateLimit,
    /// The server failed.
    Internal,
    /// The server took too long.
    Timeout,
    /// The server has too much to do.
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
    /// The body for an error.
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

    /// The body for a request that was refused.
    #[must_use]
    pub fn refused(error: &RequestError, request_id: Option<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, error.to_string(), error.code(), request_id)
    }
}
