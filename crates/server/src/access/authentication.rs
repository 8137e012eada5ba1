//! Admits requests by their key. While the server has no keys, it admits only requests from this machine.
//!
//! State: whether the server has ever seen a key. From then on it requires a key until it ends, so revoking the last key does not open the
//! server.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::{HeaderMap, header};
use conjure_base::{Clock as _, SystemClock, TenantId};

use super::caller::Caller;
use super::key::ApiKey;
use super::keys::{ApiKeys, ApiKeysError};
use crate::http::{ApiError, check_loopback};

/// Whether requests need a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthenticationMode {
    /// Each request needs a key.
    Keys,
    /// There are no keys, so programs on this machine are admitted.
    Local,
}

/// Admits requests.
#[derive(Debug)]
pub(crate) struct Authenticator {
    keys: ApiKeys,
    /// The tenant of requests without a key.
    local_tenant: TenantId,
    has_seen_keys: AtomicBool,
}

impl Authenticator {
    pub(crate) const fn new(keys: ApiKeys, local_tenant: TenantId) -> Self {
        Self { keys, local_tenant, has_seen_keys: AtomicBool::new(false) }
    }

    /// Whether requests need a key now.
    ///
    /// # Errors
    /// If the keys cannot be read.
    pub(crate) async fn mode(&self) -> Result<AuthenticationMode, ApiKeysError> {
        if self.has_seen_keys.load(Ordering::Relaxed) || self.keys.any().await? {
            self.has_seen_keys.store(true, Ordering::Relaxed);
            return Ok(AuthenticationMode::Keys);
        }
        Ok(AuthenticationMode::Local)
    }

    /// The tenants that requests can belong to: those of the keys, and the tenant of requests without a key.
    ///
    /// # Errors
    /// If the keys cannot be read.
    pub(crate) async fn tenants(&self) -> Result<BTreeSet<TenantId>, ApiKeysError> {
        let keys = self.keys.list(None).await?;
        let tenants = keys.into_iter().map(|key| key.tenant);
        Ok(tenants.chain([self.local_tenant.clone()]).collect())
    }

    /// Returns the caller of a request.
    ///
    /// # Errors
    /// 401 if a key is required and the request has no valid one. 403 if no key is required, and the request comes from a web page or
    /// another machine.
    pub(crate) async fn admit(&self, headers: &HeaderMap) -> Result<Caller, ApiError> {
        if self.mode().await? == AuthenticationMode::Local {
            check_loopback(headers)?;
            return Ok(Caller::local(self.local_tenant.clone()));
        }
        let text = credential(headers).ok_or_else(|| {
            ApiError::authentication(
                "the request has no key; send `authorization: Bearer KEY` or `x-api-key: KEY`",
            )
        })?;
        let unknown = || ApiError::authentication("the key is not known here, or was revoked");
        let key: ApiKey = text.parse().map_err(|_| unknown())?;
        let info = self.keys.find(&key).await?.ok_or_else(unknown)?;
        if info.is_expired(SystemClock.timestamp()) {
            return Err(ApiError::authentication(format!("the key {} has expired", info.id)));
        }
        Ok(info.into())
    }

    /// Whether an admitted caller is still admitted: its key was not revoked and has not expired. If the key cannot be looked up, it counts
    /// as valid.
    pub(crate) async fn is_still_admitted(&self, caller: &Caller) -> bool {
        match caller.key {
            Some(key) => {
                self.keys.get(key).await.map_or(true, |known| {
                    known.is_some_and(|known| !known.is_expired(SystemClock.timestamp()))
                })
            }
            None => self.mode().await.map_or(true, |mode| mode == AuthenticationMode::Local),
        }
    }
}

/// The key of a request, from the header `authorization` or else from `x-api-key`.
fn credential(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let api_key = || headers.get("x-api-key").and_then(|value| value.to_str().ok());
    bearer.map(|(_, key)| key.trim()).or_else(api_key)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use conjure_journal::MemoryRecords;

    use super::super::keys::NewApiKey;
    use super::super::scope::Scope;
    use super::*;

    /// Whether a request with a new key that expires so long after now is let in, and whether it may go on.
    async fn admitted(ends_in: Duration) -> (bool, bool) {
        let tenant = TenantId::new("acme").unwrap();
        let keys = ApiKeys::new(Arc::new(MemoryRecords::new()));
        let now = SystemClock.timestamp();
        let new = NewApiKey {
            tenant: tenant.clone(),
            name: "of a test".to_owned(),
            scopes: Scope::ALL.into(),
            created_at: now,
            expires_at: Some(now.saturating_add(ends_in)),
        };
        let key = keys.create(new).await.unwrap();
        let info = keys.get(key.id()).await.unwrap().unwrap();
        let admission = Authenticator::new(keys, tenant);
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", key.text().parse().unwrap());
        (admission.admit(&headers).await.is_ok(), admission.is_still_admitted(&info.into()).await)
    }

    #[tokio::test]
    async fn a_key_is_good_until_it_expires_also_for_who_was_let_in() {
        assert_eq!(admitted(Duration::from_secs(3_600)).await, (true, true));
        assert_eq!(admitted(Duration::ZERO).await, (false, false));
    }
}
