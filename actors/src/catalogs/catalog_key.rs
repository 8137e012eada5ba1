//! The key of a catalog: its name and the tenant that owns it.

use std::fmt;

use conjure_base::TenantId;

/// The name of a catalog: 1 to 64 characters of `a-z`, `A-Z`, `0-9`, `-`, `_` and `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CatalogName(String);

/// The error for a text that is not a valid catalog name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a catalog's name: it must be 1 to 64 of a-z, A-Z, 0-9, `-`, `_` and `.`", .0.escape_debug())]
pub struct CatalogNameError(String);

impl CatalogName {
    /// Creates a catalog name from `text`.
    ///
    /// # Errors
    /// When `text` is empty, longer than 64 bytes, or contains another character.
    pub fn new(text: impl Into<String>) -> Result<Self, CatalogNameError> {
        let text = text.into();
        let fits = (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if fits { Ok(Self(text)) } else { Err(CatalogNameError(text)) }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CatalogName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The key of a catalog. The key of a tenant's catalog contains the tenant, so another tenant does not find it by its
/// name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CatalogKey {
    tenant: Option<TenantId>,
    name: CatalogName,
}

impl CatalogKey {
    /// The key of a catalog of the embedder.
    #[must_use]
    pub const fn for_embedder(name: CatalogName) -> Self {
        Self { tenant: None, name }
    }

    /// The key of a catalog of this tenant. The registry follows links in its directories only if they stay inside
    /// ([`LinkPolicy::WithinScope`]).
    ///
    /// [`LinkPolicy::WithinScope`]: conjure_skill::LinkPolicy::WithinScope
    #[must_use]
    pub const fn for_tenant(tenant: TenantId, name: CatalogName) -> Self {
        Self { tenant: Some(tenant), name }
    }

    /// The tenant that owns the catalog; `None` if the embedder owns it.
    #[must_use]
    pub const fn tenant(&self) -> Option<&TenantId> {
        self.tenant.as_ref()
    }

    /// The name of the catalog.
    #[must_use]
    pub const fn name(&self) -> &CatalogName {
        &self.name
    }
}

impl fmt::Display for CatalogKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tenant {
            Some(tenant) => write!(f, "{}/{}", tenant.as_str(), self.name),
            None => write!(f, "{}", self.name),
        }
    }
}
