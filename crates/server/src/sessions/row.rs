//! The row of a session: the client's settings, and the agent at the time of the creation.
//!
//! Everything else is in the runtime's journal. A session exists for clients as long as its row does. The row is written after the session
//! is complete, and deleted before the session. So clients never see half a session after a crash.

use conjure_api::{Budget, EnvironmentId, Metadata, Resource, SessionAgent, Time, VaultId};
use serde::{Deserialize, Serialize};

/// The body of a session's row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SessionRow {
    /// The session's version of the agent, with the session's overrides.
    pub(crate) agent: SessionAgent,
    pub(crate) environment_id: EnvironmentId,
    pub(crate) title: Option<String>,
    pub(crate) metadata: Metadata,
    pub(crate) resources: Vec<Resource>,
    pub(crate) budget: Option<Budget>,
    pub(crate) archived_at: Option<Time>,
    /// The vaults with the session's credentials. Rows of older versions have none.
    #[serde(default)]
    pub(crate) vault_ids: Vec<VaultId>,
}
