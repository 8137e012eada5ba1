//! Sign-ins at configured MCP servers. Their tokens are stored for all sessions of a tenant.

use conjure_base::TenantId;
use conjure_vault::{CredentialSecret, LOGIN_VAULT, OAuthTokens, VaultError};

use crate::runtime::handle::Runtime;

impl Runtime {
    /// Stores the tokens of a sign-in at the server `url`. Sessions of the tenant with a configured MCP server of this
    /// address use the tokens from their next connection on, and renew them.
    ///
    /// # Errors
    ///
    /// If the tokens cannot be sealed or written.
    pub async fn store_login(
        &self,
        tenant: &TenantId,
        url: &str,
        tokens: OAuthTokens,
    ) -> Result<(), VaultError> {
        let store = self.vaults().credentials(tenant).await?;
        store.put_login(url, &CredentialSecret::OAuth(tokens)).await
    }

    /// The scopes of the tenant's sign-in at the server `url`, as far as they are known. Empty if there is no sign-in.
    ///
    /// # Errors
    ///
    /// If the sign-in cannot be read, or was sealed with another key.
    pub async fn login_scopes(&self, tenant: &TenantId, url: &str) -> Result<Vec<String>, VaultError> {
        let store = self.vaults().credentials(tenant).await?;
        let found = store.find(&[LOGIN_VAULT.to_owned()], url).await?;
        let scope = found.and_then(|found| match found.secret {
            CredentialSecret::OAuth(tokens) => tokens.scope,
            CredentialSecret::Bearer { .. } => None,
        });
        Ok(scope.unwrap_or_default().split_whitespace().map(str::to_owned).collect())
    }

    /// Deletes the tenant's sign-in at the server `url`. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// If it cannot be deleted.
    pub async fn remove_login(&self, tenant: &TenantId, url: &str) -> Result<bool, VaultError> {
        self.vaults().credentials(tenant).await?.remove_login(url).await
    }
}
