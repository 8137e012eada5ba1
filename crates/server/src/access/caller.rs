//! Who asks: a tenant, and what its key may do.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use conjure_base::TenantId;

use crate::http::ApiError;

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// Read: lists, objects, events, streams.
    Read,
    /// Run: sessions, their events and their files.
    Run,
    /// Administer: agents, environments and skills.
    Admin,
}

/// The scopes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scopes {
    pub(crate) read: bool,
    pub(crate) run: bool,
    pub(crate) admin: bool,
}

impl Scopes {
    pub(crate) const ALL: Self = Self { read: true, run: true, admin: true };
    pub(crate) const NONE: Self = Self { read: false, run: false, admin: false };

    pub(crate) const fn contains(self, scope: Scope) -> bool {
        match scope {
            Scope::Read => self.read,
            Scope::Run => self.run,
            Scope::Admin => self.admin,
        }
    }
}

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) tenant: TenantId,
    pub(crate) scopes: Scopes,
}

impl Caller {
    /// Whoever asks a probe.
    pub(crate) const fn nobody(tenant: TenantId) -> Self {
        Self { tenant, scopes: Scopes::NONE }
    }

    /// Whoever is on this machine. This server has no keys.
    pub(crate) const fn local(tenant: TenantId) -> Self {
        Self { tenant, scopes: Scopes::ALL }
    }

    /// Refuses what the key may not do.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn require(&self, scope: Scope) -> Result<(), ApiError> {
        if self.scopes.contains(scope) {
            return Ok(());
        }
        let name = match scope {
            Scope::Read => "read",
            Scope::Run => "run",
            Scope::Admin => "admin",
        };
        Err(ApiError::permission(format!("this key lacks the scope `{name}`")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ApiError::authentication("the request has no key"))
    }
}
