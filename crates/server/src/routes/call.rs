//! [`Call`]: what every handler of an object gets, the server's state and the caller.

use std::sync::Arc;

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use conjure_api::VaultId;
use conjure_base::TenantId;

use crate::access::Caller;
use crate::http::ApiError;
use crate::objects::{AgentParts, Agents, Credentials, Environments, Files, Skills, Vaults};
use crate::sessions::SessionStore;
use crate::state::ServerState;

/// The answer of a handler: an object in JSON, or an error.
pub(super) type JsonResult<T> = Result<Json<T>, ApiError>;

/// An admitted request: the server's state, and the caller. Its stores hold the objects of the caller's tenant.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) state: Arc<ServerState>,
    pub(super) caller: Caller,
}

impl Call {
    pub(super) const fn tenant(&self) -> &TenantId {
        &self.caller.tenant
    }

    pub(super) fn agents(&self) -> Agents<'_> {
        Agents::new(&*self.state.records, self.tenant())
    }

    pub(super) fn agent_parts(&self) -> AgentParts<'_> {
        AgentParts::new(&self.state, self.tenant())
    }

    pub(super) fn environments(&self) -> Environments<'_> {
        Environments::new(&*self.state.records, self.tenant())
    }

    pub(super) fn files(&self) -> Files<'_> {
        Files::new(&*self.state.records, self.tenant())
    }

    pub(super) fn skills(&self) -> Skills<'_> {
        Skills::new(&*self.state.records, self.tenant())
    }

    pub(super) fn vaults(&self) -> Vaults<'_> {
        Vaults::new(&*self.state.records, self.tenant())
    }

    pub(super) async fn credentials(&self, vault: VaultId) -> Result<Credentials<'_>, ApiError> {
        Credentials::open(&self.state, self.tenant(), vault).await
    }

    pub(super) fn sessions(&self) -> SessionStore<'_> {
        SessionStore::new(&*self.state.records, self.tenant())
    }
}

impl FromRequestParts<Arc<ServerState>> for Call {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<ServerState>) -> Result<Self, ApiError> {
        Ok(Self { state: Arc::clone(state), caller: Caller::of_request(&parts.extensions)?.clone() })
    }
}
