//! MCP servers whose program is in an image, in a build without containers.

use std::path::PathBuf;
use std::sync::Arc;

use conjure_journal::SessionKey;
use conjure_mcp::{ContainerRun, McpServerSpec, StdioServer};

use super::server_parts::ServerParts;
use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::session::factory::session_factory::Inner;

impl Inner {
    /// Fails: this build has no containers.
    pub(super) fn container_part(
        &self,
        _: &SessionKey,
        _: &Arc<TenantDir>,
        (spec, _): (&McpServerSpec, &StdioServer),
        _: ContainerRun,
        _: PathBuf,
    ) -> Result<ServerParts, RuntimeError> {
        let reason = "this build has no containers: it was made without the feature `docker`".to_owned();
        Err(RuntimeError::McpServer { server: spec.name.to_string(), reason })
    }
}
