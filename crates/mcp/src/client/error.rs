//! [`McpError`]: why a server cannot be called, or did not answer.

use conjure_base::Redactor;

/// Why a server cannot be called, or did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum McpError {
    /// The server could not be started or reached, or did not speak MCP.
    #[error("the MCP server `{server}` could not be started: {reason}")]
    NotStarted { server: String, reason: String },
    /// The server failed several times in a row, and is not restarted before the backoff has passed.
    #[error(
        "the MCP server `{server}` is not restarted for {seconds} s after {failures} failures; the last one: {reason}"
    )]
    WaitsForRetry { server: String, seconds: u64, failures: u32, reason: String },
    /// The server ended while a call was running.
    #[error(
        "the MCP server `{server}` ended while the call ran, so what the call did is not known: {reason}"
    )]
    Lost { server: String, reason: String },
    /// The service requires authorization, and did not accept the credentials.
    #[error("the MCP server `{server}` asks for authorization: {advice}")]
    NeedsAuthorization { server: String, advice: String },
    /// The token lacks scopes for this request.
    #[error("the MCP server `{server}` asks for more than its token permits, and nothing was done: {advice}")]
    NeedsScopes { server: String, advice: String },
    /// The server answered with an error.
    #[error("the MCP server `{server}` answered: {reason}")]
    Refused { server: String, reason: String },
    /// The skill has changed since the server listed it.
    #[error(
        "the skill has changed at the MCP server `{server}` and must be approved again: call the tool again with the version that it lists next"
    )]
    SkillChanged { server: String },
    /// The skill's files do not match what the server lists.
    #[error("the skill of the MCP server `{server}` is refused: {reason}")]
    WrongSkill { server: String, reason: String },
    /// The server requests something that this client does not offer.
    #[error("the MCP server `{server}` {reason}")]
    Unsupported { server: String, reason: String },
}

impl McpError {
    /// The same error. If the server did not start, `further` is added to the reason.
    pub(super) fn with_reason(mut self, further: Option<String>) -> Self {
        if let (Self::NotStarted { reason, .. }, Some(further)) = (&mut self, further) {
            *reason = format!("{reason}; {further}");
        }
        self
    }

    /// The same error without these secrets, which the server may have repeated.
    pub(super) fn redacted(mut self, redactor: &Redactor) -> Self {
        match &mut self {
            Self::NotStarted { reason, .. }
            | Self::WaitsForRetry { reason, .. }
            | Self::Lost { reason, .. }
            | Self::Refused { reason, .. }
            | Self::WrongSkill { reason, .. }
            | Self::Unsupported { reason, .. }
            | Self::NeedsScopes { advice: reason, .. }
            | Self::NeedsAuthorization { advice: reason, .. } => {
                *reason = redactor.redact(reason).into_owned();
            }
            Self::SkillChanged { .. } => {}
        }
        self
    }
}
