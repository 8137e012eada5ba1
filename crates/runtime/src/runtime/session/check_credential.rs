//! Checks a credential of a vault at an MCP server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use conjure_base::{Redactor, TenantId, lock};
use conjure_mcp::{Authorize, HttpServer, McpServer, McpServerName, McpServerSpec, McpServers, McpTransport};

use crate::runtime::operations::CredentialCheck;
use crate::runtime::session::factory::session_factory::RuntimeSessionFactory;
use crate::runtime::session::mcp::VaultAuthorization;

impl RuntimeSessionFactory {
    /// Connects to the server at `url` with a credential of the vault and lists the server's tools.
    pub(crate) async fn check_credential(
        &self,
        tenant: &TenantId,
        vault: &str,
        url: &str,
    ) -> CredentialCheck {
        let addresses = self.inner.remote_addresses();
        let authorization = Arc::new(VaultAuthorization {
            vaults: self.vaults.get().cloned(),
            tenant: tenant.clone(),
            names: vec![vault.to_owned()],
            url: url.to_owned(),
            addresses,
            redactor: Redactor::default(),
            renewal: Mutex::default(),
            advice: String::new(),
        });
        let failed =
            |is_refused, renewal| CredentialCheck { failed_method: Some("initialize"), is_refused, renewal };
        let Ok(name) = McpServerName::new("checked") else {
            return failed(false, *lock(&authorization.renewal));
        };
        let http = HttpServer { url: url.to_owned(), headers: BTreeMap::new(), addresses };
        let spec = McpServerSpec { required: true, ..McpServerSpec::new(name, McpTransport::Http(http)) };
        let server = McpServer::authorized(spec, None, Arc::clone(&authorization) as Arc<dyn Authorize>);
        let servers = McpServers::new(vec![server.into()], None, &Redactor::default());
        servers.wait_required().await;
        let failures = servers.failures();
        let renewal = *lock(&authorization.renewal);
        match failures.first() {
            None => CredentialCheck { failed_method: None, is_refused: false, renewal },
            Some(failure) => failed(failure.needs_authorization, renewal),
        }
    }
}
