//! The caller of a request: its tenant, and the scopes of its key.

use std::collections::BTreeSet;

use axum::http::Extensions;
use conjure_base::TenantId;

use crate::access::key::ApiKeyId;
use crate::access::keys::ApiKeyInfo;
use crate::access::scope::Scope;
use crate::http::ApiError;

/// The caller of a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) tenant: TenantId,
    pub(crate) scopes: BTreeSet<Scope>,
    /// The key of the request; `None` on a server without keys.
    pub(crate) key: Option<ApiKeyId>,
}

impl Caller {
    /// The caller of an open path, such as a probe. It has no scopes.
    pub(crate) const fn anonymous(tenant: TenantId) -> Self {
        Self { tenant, scopes: BTreeSet::new(), key: None }
    }

    /// A caller on this machine, for a server without keys. It has all scopes.
    pub(crate) fn local(tenant: TenantId) -> Self {
        Self { tenant, scopes: Scope::ALL.into(), key: None }
    }

    /// The caller of the request with these extensions.
    ///
    /// # Errors
    /// 401 if the request was not admitted.
    pub(crate) fn of_request(extensions: &Extensions) -> Result<&Self, ApiError> {
        extensions.get().ok_or_else(|| ApiError::authentication("the request has no key"))
    }

    /// Checks that the key has this scope.
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
