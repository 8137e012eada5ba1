//! Sign-ins at configured MCP servers: their tokens are stored for all sessions of a tenant.

use conjure_base::TenantId;
use conjure_vault::{CredentialSecret, OAuthTokens, VaultError};

use crate::runtime::handle::Runtime;

impl Runtime {
    /// Stores what a person got by signing in at the server `url`. Sessions of the tenant with a configured MCP server of this address use it from
    /// the next connection on, and renew it.
    ///
    /// # Errors
    ///
    /// If it cannot be sealed or written.
    pub async fn store_login(
        &self,
        tenant: &TenantId,
        url: &str,
        tokens: OAuthTokens,
    ) -> Result<(), VaultError> {
        let store = self.vaults().credentials(tenant).await?;
        store.put_login(url, &CredentialSecret::OAuth(tokens)).await
    }

    /// Forgets it. Returns whether there was anything to forget.
    ///
    /// # Errors
    ///
    /// If it cannot be deleted.
    pub async fn remove_login(&self, tenant: &TenantId, url: &str) -> Result<bool, VaultError> {
        self.vaults().credentials(tenant).await?.remove_login(url).await
    }
}
