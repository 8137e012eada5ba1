//! [`VaultAuthorization`]: supplies a session's remote servers with tokens from the session's vaults.

use std::sync::Mutex;
use std::time::Duration;

use conjure_base::{Backoff, Clock as _, Redactor, SystemClock, TenantId, lock};
use conjure_mcp::{AddressScope, Authorize, RefreshError, refresh_tokens};
use conjure_vault::{CredentialSecret, CredentialStore, FoundCredential, OAuthRefresh, OAuthTokens};
use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};

use crate::runtime::data::vaults::Vaults;
use crate::runtime::operations::RenewalOutcome;

/// A token is renewed if it expires within this time.
const RENEW_BEFORE: Duration = Duration::from_secs(60);

/// How often a credential is read again because another caller or process changed it.
const MAX_ATTEMPTS: usize = 4;

/// How often storing renewed tokens is retried. [`STORE_RETRY`] says how long to wait in between.
const STORE_ATTEMPTS: u32 = 6;
const STORE_RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// The name that the redactor shows instead of a token.
const REDACTED_AS: &str = "MCP_TOKEN";

/// Finds the token for one server in the vaults of one session. It reads the vaults each time, so a replaced token is
/// used from the next connection on.
#[derive(Debug)]
pub(in crate::runtime::session) struct VaultAuthorization {
    /// `None` before the journal is open.
    pub(in crate::runtime::session) vaults: Option<Vaults>,
    pub(in crate::runtime::session) tenant: TenantId,
    /// The vaults of the session.
    pub(in crate::runtime::session) names: Vec<String>,
    pub(in crate::runtime::session) url: String,
    pub(in crate::runtime::session) addresses: AddressScope,
    /// The session's redactor. Each token is added to it.
    pub(in crate::runtime::session) redactor: Redactor,
    /// The outcome of the last attempt to renew a token.
    pub(in crate::runtime::session) renewal: Mutex<RenewalOutcome>,
    /// What the user can do if no credential is accepted.
    pub(in crate::runtime::session) advice: String,
}

impl VaultAuthorization {
    async fn find(&self, refused: Option<&SecretString>) -> Result<Option<SecretString>, String> {
        let Some(vaults) = self.vaults.as_ref().filter(|_| !self.names.is_empty()) else { return Ok(None) };
        let store = vaults.credentials(&self.tenant).await.map_err(|error| error.to_string())?;
        let mut renewed = false;
        for _ in 0..MAX_ATTEMPTS {
            let found = store.find(&self.names, &self.url).await.map_err(|error| error.to_string())?;
            let Some(found) = found else { return Ok(None) };
            let is_refused = refused
                .is_some_and(|refused| refused.expose_secret() == found.secret.token().expose_secret());
            let CredentialSecret::OAuth(tokens) = &found.secret else {
                return Ok((!is_refused).then(|| self.register_token(&found.secret)));
            };
            if renewed || !(is_refused || expires_soon(tokens)) {
                return Ok((!is_refused).then(|| self.register_token(&found.secret)));
            }
            match self.renew(vaults, &store, &found, tokens).await {
                Ok(true) => renewed = true,
                // Another caller or process has renewed or replaced the token.
                Ok(false) => {}
                // The server may still accept the old token.
                Err(reason) if !is_refused => {
                    tracing::warn!(credential = found.id, reason, "a token is not renewed");
                    return Ok(Some(self.register_token(&found.secret)));
                }
                Err(reason) => {
                    return Err(format!("the credential `{}` was not accepted, and {reason}", found.id));
                }
            }
        }
        Err("the credential changed during each attempt; try again".to_owned())
    }

    /// Renews the token of a credential. Returns `false` if another caller or process changed the credential meanwhile.
    async fn renew(
        &self,
        vaults: &Vaults,
        store: &CredentialStore<'_>,
        found: &FoundCredential,
        tokens: &OAuthTokens,
    ) -> Result<bool, String> {
        let Some(refresh) = &tokens.refresh else {
            *lock(&self.renewal) = RenewalOutcome::Refused;
            return Err("it has no refresh token; store a new access token".to_owned());
        };
        // Within this process, one renewal runs at a time, because a refresh token is often valid only once. If several
        // processes renew, only one of them stores its tokens.
        let renewal_guard = vaults.renewing(&found.id).await;
        let current = store.find(&self.names, &self.url).await.map_err(|error| error.to_string())?;
        let is_same = current.is_some_and(|current| {
            current.id == found.id
                && current.secret.token().expose_secret() == tokens.access_token.expose_secret()
        });
        if !is_same {
            return Ok(false);
        }
        let renewal = Renewal {
            vaults: vaults.clone(),
            tenant: self.tenant.clone(),
            found: found.clone(),
            refresh: refresh.clone(),
            scope: tokens.scope.clone(),
            addresses: self.addresses,
        };
        // The renewal continues even if the session ends meanwhile, because the old refresh token may be used up already.
        let run = async move {
            let result = renewal.run().await;
            drop(renewal_guard);
            result
        };
        let (outcome, stored) = vaults
            .renew(run)
            .await
            .unwrap_or((RenewalOutcome::Unreachable, Err("the renewal was lost".to_owned())));
        *lock(&self.renewal) = outcome;
        stored
    }

    /// Returns the token, and adds it to the redactor.
    fn register_token(&self, secret: &CredentialSecret) -> SecretString {
        let token = secret.token();
        let text = [(REDACTED_AS.to_owned(), token.expose_secret().to_owned())];
        self.redactor.extend(&Redactor::new(text));
        token.clone()
    }
}

/// One renewal of a credential's token.
struct Renewal {
    vaults: Vaults,
    tenant: TenantId,
    found: FoundCredential,
    refresh: OAuthRefresh,
    /// The scope of the old token.
    scope: Option<String>,
    addresses: AddressScope,
}

impl Renewal {
    /// Requests new tokens from the token endpoint and stores them. The result says whether they were stored. They are
    /// not if the credential was changed meanwhile.
    async fn run(self) -> (RenewalOutcome, Result<bool, String>) {
        let new = match refresh_tokens(&self.refresh, self.addresses).await {
            // If the response names no scope, the scope is unchanged.
            Ok(new) => OAuthTokens { scope: new.scope.clone().or_else(|| self.scope.clone()), ..new },
            Err(error) => {
                let outcome = match error {
                    RefreshError::Unreachable(_) => RenewalOutcome::Unreachable,
                    _ => RenewalOutcome::Refused,
                };
                return (outcome, Err(error.to_string()));
            }
        };
        (RenewalOutcome::Renewed, self.store(&CredentialSecret::OAuth(new)).await)
    }

    /// Stores the new tokens. Retries several times, because the old refresh token may be used up.
    async fn store(&self, new: &CredentialSecret) -> Result<bool, String> {
        let mut failures = 0;
        loop {
            let stored =
                async { self.vaults.credentials(&self.tenant).await?.replace_secret(&self.found, new).await };
            match stored.await {
                Ok(stored) => return Ok(stored),
                Err(error) if failures == STORE_ATTEMPTS => return Err(error.to_string()),
                Err(error) => {
                    tracing::warn!(credential = self.found.id, %error, "renewed tokens are not stored yet")
                }
            }
            SystemClock.sleep_until(SystemClock.deadline(STORE_RETRY.wait(failures))).await;
            failures += 1;
        }
    }
}

/// Whether a token can be renewed and has expired or expires soon.
fn expires_soon(tokens: &OAuthTokens) -> bool {
    let soon =
        SystemClock.timestamp().millis().saturating_add(RENEW_BEFORE.as_millis().try_into().unwrap_or(0));
    tokens.refresh.is_some() && tokens.expires_at.is_some_and(|expiry| expiry.millis() <= soon)
}

impl Authorize for VaultAuthorization {
    fn token<'a>(
        &'a self,
        refused: Option<&'a SecretString>,
    ) -> BoxFuture<'a, Result<Option<SecretString>, String>> {
        Box::pin(self.find(refused))
    }

    fn advice(&self) -> String {
        self.advice.clone()
    }
}
