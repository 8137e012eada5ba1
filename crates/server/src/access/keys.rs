//! The keys of a server.

use axum::http::{HeaderMap, header};
use conjure_base::TenantId;

use crate::access::caller::Caller;
use crate::http::ApiError;

/// The keys of a server. While there are none, whoever is on this machine is the server's own tenant.
#[derive(Debug)]
pub(crate) struct Keys {
    tenant: TenantId,
}

impl Keys {
    pub(crate) const fn new(tenant: TenantId) -> Self {
        Self { tenant }
    }

    /// Whether a request needs a key.
    pub(crate) const fn is_required(&self) -> bool {
        false
    }

    /// Who asks with these headers.
    ///
    /// # Errors
    /// 401 if a key is needed and none of these is one.
    pub(crate) async fn admit(&self, headers: &HeaderMap) -> Result<Caller, ApiError> {
        let _ = key_of(headers);
        Ok(Caller::local(self.tenant.clone()))
    }
}

/// The key in `authorization: Bearer` or `x-api-key`.
fn key_of(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer =
        bearer.and_then(|value| value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("bearer ")));
    bearer.or_else(|| headers.get("x-api-key").and_then(|value| value.to_str().ok())).map(str::trim)
}
