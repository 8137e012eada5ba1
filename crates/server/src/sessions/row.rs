//! What the server stores of a session: what the client gave, and the agent as it was then.
//!
//! The runtime's journal has everything else. A session exists for clients while its row does: the row is written when the session is
//! complete, and goes before the session does. So no crash leaves half a session that anybody sees.

use conjure_api::{Budget, EnvironmentId, Metadata, Resource, SessionAgent, Time, VaultId};
use serde::{Deserialize, Serialize};

/// The body of a session's row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SessionRow {
    /// The agent as the session runs it: one version, with what the session overrides.
    pub(crate) agent: SessionAgent,
    pub(crate) environment_id: EnvironmentId,
    pub(crate) title: Option<String>,
    pub(crate) metadata: Metadata,
    pub(crate) resources: Vec<Resource>,
    pub(crate) budget: Option<Budget>,
    pub(crate) archived_at: Option<Time>,
    /// The vaults with its credentials. Rows of older versions have none.
    #[serde(default)]
    pub(crate) vault_ids: Vec<VaultId>,
}
