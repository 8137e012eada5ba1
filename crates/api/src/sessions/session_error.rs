//! Errors of a session, as its events tell them.

use serde::Serialize;

/// What failed in a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionError {
    /// What kind of failure.
    pub r#type: SessionErrorKind,
    /// Words for people.
    pub message: String,
    /// Whether the server tries again.
    pub retry_status: RetryStatus,
    /// The server of tools that failed, for the two kinds that are about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_server_name: Option<String>,
}

/// The kinds of failures that this server tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names are those of the published API")]
pub enum SessionErrorKind {
    #[serde(rename = "unknown_error")]
    Unknown,
    #[serde(rename = "model_overloaded_error")]
    ModelOverloaded,
    #[serde(rename = "model_rate_limited_error")]
    ModelRateLimited,
    #[serde(rename = "model_request_failed_error")]
    ModelRequestFailed,
    #[serde(rename = "mcp_connection_failed_error")]
    McpConnectionFailed,
    #[serde(rename = "mcp_authentication_failed_error")]
    McpAuthenticationFailed,
    #[serde(rename = "billing_error")]
    Billing,
    #[serde(rename = "tool_use_limit_reached_error")]
    ToolUseLimitReached,
    #[serde(rename = "compaction_limit_reached_error")]
    CompactionLimitReached,
}

/// Whether the server tries again after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RetryStatus {
    /// It does.
    Retrying,
    /// The turn is over; the client may send another message.
    Exhausted,
    /// The session is over.
    Terminal,
}

impl SessionError {
    /// An error of `kind`.
    pub fn new(kind: SessionErrorKind, message: impl Into<String>, retry_status: RetryStatus) -> Self {
        Self { r#type: kind, message: message.into(), retry_status, mcp_server_name: None }
    }
}
