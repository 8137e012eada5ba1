//! Whose a place is.

use conjure_base::TenantId;

/// Whose a place at a gate is, and who waits for one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    Tenant(TenantId),
    /// No tenant's: what is done before any of them needs it.
    House,
}

impl Party {
    pub(super) const fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Tenant(tenant) => Some(tenant),
            Self::House => None,
        }
    }
}

impl From<&TenantId> for Party {
    fn from(tenant: &TenantId) -> Self {
        Self::Tenant(tenant.clone())
    }
}
