//! Checks a credential of a vault: calls an MCP server with it, as a session would.

use conjure_base::TenantId;

use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;

/// The result of a credential check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialCheck {
    /// The method of MCP that failed; `None` if the server listed its tools.
    pub failed_method: Option<&'static str>,
    /// Whether it failed because the server did not accept the credential.
    pub is_refused: bool,
    /// The outcome of renewing the token.
    pub renewal: RenewalOutcome,
}

/// The outcome of renewing a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RenewalOutcome {
    /// It was not tried.
    #[default]
    NotTried,
    /// The vault has a new token.
    Renewed,
    /// There is no refresh token, or it was not accepted.
    Refused,
    /// The token endpoint could not be reached.
    Unreachable,
}

impl Runtime {
    /// Asks the MCP server at `url` for its tools, with the credential that this vault has for the server. If the
    /// server does not accept the token, it is renewed once, and the new token is stored.
    ///
    /// # Errors
    ///
    /// Only in a build without MCP.
    #[cfg(feature = "mcp")]
    pub async fn check_credential(
        &self,
        tenant: &TenantId,
        vault: &str,
        url: &str,
    ) -> Result<CredentialCheck, RuntimeError> {
        Ok(self.inner.factory.check_credential(tenant, vault, url).await)
    }

    /// Asks the server at `url` for its tools, with the credential that this vault has for it.
    ///
    /// # Errors
    ///
    /// Always: this build has no MCP.
    #[cfg(not(feature = "mcp"))]
    pub async fn check_credential(
        &self,
        _: &TenantId,
        _: &str,
        url: &str,
    ) -> Result<CredentialCheck, RuntimeError> {
        let reason = "this build has no MCP: build it with the feature `mcp`, which is in `full`".to_owned();
        Err(RuntimeError::McpServer { server: url.to_owned(), reason })
    }
}
