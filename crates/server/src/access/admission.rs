//! Lets requests in: by a key, or, where there is none, from this machine.
//!
//! State: whether keys were ever seen. A server that has seen keys asks for one until it ends, so that revoking the last key opens nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::{HeaderMap, header};
use conjure_base::{Clock as _, SystemClock, TenantId};

use super::caller::Caller;
use super::key::ApiKey;
use super::keys::{ApiKeys, ApiKeysError};
use crate::http::{ApiError, check_loopback};

/// Whether requests need a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmissionMode {
    /// Each request needs a key.
    Keys,
    /// There are no keys: programs of this machine are let in.
    Local,
}

/// Lets requests in.
#[derive(Debug)]
pub(crate) struct Admission {
    keys: ApiKeys,
    /// The tenant of requests without a key.
    local_tenant: TenantId,
    has_seen_keys: AtomicBool,
}

impl Admission {
    pub(crate) const fn new(keys: ApiKeys, local_tenant: TenantId) -> Self {
        Self { keys, local_tenant, has_seen_keys: AtomicBool::new(false) }
    }

    /// Whether requests need a key now.
    ///
    /// # Errors
    /// If the keys cannot be read.
    pub(crate) async fn mode(&self) -> Result<AdmissionMode, ApiKeysError> {
        if self.has_seen_keys.load(Ordering::Relaxed) || self.keys.any().await? {
            self.has_seen_keys.store(true, Ordering::Relaxed);
            return Ok(AdmissionMode::Keys);
        }
        Ok(AdmissionMode::Local)
    }

    /// Who asks.
    ///
    /// # Errors
    /// 401 without a key that is known, 403 for pages and machines elsewhere, where no key is needed.
    pub(crate) async fn admit(&self, headers: &HeaderMap) -> Result<Caller, ApiError> {
        if self.mode().await? == AdmissionMode::Local {
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

    /// Whether a caller that was let in may go on: its key was not revoked. A key that cannot be looked up is not taken for revoked.
    pub(crate) async fn is_still_admitted(&self, caller: &Caller) -> bool {
        match caller.key {
            Some(key) => self.keys.exists(key).await.unwrap_or(true),
            None => self.mode().await.map_or(true, |mode| mode == AdmissionMode::Local),
        }
    }
}

/// The key in a request: the header of the SDK, or that of older ones.
fn credential(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let api_key = || headers.get("x-api-key").and_then(|value| value.to_str().ok());
    bearer.map(|(_, key)| key.trim()).or_else(api_key)
}
