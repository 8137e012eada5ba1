//! Who asks: a tenant, and what its key may do.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use conjure_base::TenantId;
use serde::{Deserialize, Serialize};

use crate::access::key::ApiKeyId;
use crate::access::keys::ApiKeyInfo;
use crate::http::ApiError;

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Scope {
    /// Read: lists, objects, events, streams.
    Read,
    /// Run: sessions, their events and their files.
    Run,
    /// Administer: agents, environments and skills.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Read, Self::Run, Self::Admin];
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Admin => "admin",
        })
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|scope| scope.to_string() == text);
        known.ok_or_else(|| format!("there is no scope `{text}`; there are `read`, `run` and `admin`"))
    }
}

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) tenant: TenantId,
    pub(crate) scopes: BTreeSet<Scope>,
    /// The key that it asks with; `None` on a server without keys.
    pub(crate) key: Option<ApiKeyId>,
}

impl Caller {
    /// Whoever asks a probe.
    pub(crate) const fn nobody(tenant: TenantId) -> Self {
        Self { tenant, scopes: BTreeSet::new(), key: None }
    }

    /// Whoever is on this machine. This server has no keys.
    pub(crate) fn local(tenant: TenantId) -> Self {
        Self { tenant, scopes: Scope::ALL.into(), key: None }
    }

    /// Refuses what the key may not do.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn require(&self, scope: Scope) -> Result<(), ApiError> {
        if self.scopes.contains(&scope) {
            return Ok(());
        }
        Err(ApiError::permission(format!("this key lacks the scope `{scope}`")))
    }
}

impl From<ApiKeyInfo> for Caller {
    fn from(key: ApiKeyInfo) -> Self {
        Self { tenant: key.tenant, scopes: key.scopes, key: Some(key.id) }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ApiError::authentication("the request has no key"))
    }
}
