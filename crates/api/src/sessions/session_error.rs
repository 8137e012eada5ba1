//! Errors in the events of a session.

use serde::Serialize;

/// An error of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionError {
    /// The kind of the error.
    pub r#type: SessionErrorKind,
    /// A message for people.
    pub message: String,
    /// Whether the server retries.
    pub retry_status: RetryStatus,
    /// The MCP server that failed, for the two kinds that concern one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_server_name: Option<String>,
}

/// The kinds of errors that this server reports.
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
}

/// Whether the server retries after an error. Errors are reported after all retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RetryStatus {
    /// The turn has ended. The client may send another message.
    Exhausted,
}

impl SessionError {
    /// Creates an error of `kind`.
    pub fn new(kind: SessionErrorKind, message: impl Into<String>) -> Self {
        let retry_status = RetryStatus::Exhausted;
        Self { r#type: kind, message: message.into(), retry_status, mcp_server_name: None }
    }
}
