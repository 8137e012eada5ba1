//! Queries of the session factory about its runtime: the configuration, the tenants, their folders and their models.

use std::path::PathBuf;
use std::sync::Arc;

use conjure_actors::pool::PoolStats;
use conjure_actors::tenants::TenantAccounts;
use conjure_artifact::ServiceFileDeletion;
#[cfg(feature = "mcp")]
use conjure_base::Deadline;
use conjure_base::TenantId;
use conjure_conversation::{Model, SessionProfile};
use conjure_journal::SessionKey;

use crate::config::Config;
use crate::models::CallSettings;
use crate::runtime::data::data_layout::{RuntimeDir, TenantDir};
#[cfg(feature = "mcp")]
use crate::runtime::data::vaults::Vaults;
use crate::runtime::error::RuntimeError;
use crate::runtime::session::factory::hosted_sessions;
use crate::runtime::session::factory::session_factory::RuntimeSessionFactory;
#[cfg(feature = "mcp")]
use crate::runtime::session::mcp::TenantServers;
use crate::runtime::task_set::run_blocking;
use crate::runtime::tenants::{DiskUsage, MaxAge, TenantDeletions, TenantPolicies};

impl RuntimeSessionFactory {
    pub(crate) fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The state of the warm pools.
    pub(crate) fn pools(&self) -> Vec<PoolStats> {
        self.inner.sandboxes.pools().stats()
    }

    /// The policies of the tenants.
    pub(crate) fn policies(&self) -> &TenantPolicies {
        self.inner.sandboxes.policies()
    }

    /// The tenants that are being deleted.
    pub(crate) fn deletions(&self) -> &TenantDeletions {
        &self.inner.deletions
    }

    pub(crate) fn data_dir(&self) -> &Arc<RuntimeDir> {
        &self.inner.home
    }

    /// Fails if the tenant is being deleted.
    pub(crate) async fn check_tenant(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        let (inner, tenant) = (Arc::clone(&self.inner), tenant.clone());
        run_blocking("checking whether a tenant is being deleted", move || inner.deletions.check(&tenant))
            .await
    }

    /// Fails if the tenant has reached its disk quota.
    pub(crate) async fn check_disk(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        self.inner.sandboxes.disk_usage().check(tenant).await
    }

    /// Counts the journal as disk usage of the tenants from now on. `bodies` is the folder of its large bodies.
    pub(crate) fn set_journal(&self, tenancy: TenantAccounts, bodies: PathBuf) {
        self.inner.sandboxes.disk_usage().set_journal(tenancy, bodies);
    }

    /// Sets the MCP servers that the sessions of a tenant share. Called before the first session starts.
    #[cfg(feature = "mcp")]
    pub(crate) fn set_tenant_servers(&self, servers: TenantServers) {
        let _ = self.inner.tenant_servers.set(servers);
    }

    /// Sets the accounts from which the tenants' budgets pay for model calls that no session records.
    #[cfg(feature = "mcp")]
    pub(crate) fn set_accounts(&self, accounts: TenantAccounts) {
        let _ = self.inner.accounts.set(accounts);
    }

    /// Ends the MCP servers that the sessions of a tenant shared. The tenant must not have sessions any more.
    #[cfg(feature = "mcp")]
    pub(crate) async fn end_tenant_servers(
        &self,
        tenant: &TenantId,
        deadline: Deadline,
    ) -> Result<(), RuntimeError> {
        match self.inner.tenant_servers.get() {
            Some(servers) => servers.end_tenant(tenant, deadline).await,
            None => Ok(()),
        }
    }

    /// Stops the tasks of the shared MCP servers. Called after all actors have stopped.
    #[cfg(feature = "mcp")]
    pub(crate) async fn close_tenant_servers(&self, deadline: Deadline) {
        if let Some(servers) = self.inner.tenant_servers.get() {
            servers.close(deadline).await;
        }
    }

    #[cfg(feature = "mcp")]
    pub(crate) fn set_vaults(&self, vaults: Vaults) {
        let _ = self.inner.vaults.set(vaults);
    }

    /// The vaults; `None` before the journal is open.
    #[cfg(feature = "mcp")]
    pub(crate) fn vaults(&self) -> Option<Vaults> {
        self.inner.vaults.get().cloned()
    }

    /// The disk usage of a tenant.
    pub(crate) async fn disk_usage(
        &self,
        tenant: &TenantId,
        freshness: MaxAge,
    ) -> Result<DiskUsage, RuntimeError> {
        self.inner.sandboxes.disk_usage().measure(tenant, freshness).await
    }

    /// The service that deletes the remote files of this tenant's sessions with a model of this name.
    ///
    /// # Errors
    ///
    /// The reason why these files cannot be deleted, as text.
    pub(crate) fn file_removal(
        &self,
        tenant: &TenantId,
        model: Option<&str>,
    ) -> Result<Arc<dyn ServiceFileDeletion>, String> {
        let (name, model) = self.unwrapped_model(tenant, model).map_err(|error| error.to_string())?;
        hosted_sessions::removal_of(&name, &*model)
    }

    /// Whether sessions of this profile may have files at their model's service. This is so if one of these holds:
    ///
    /// - They have hosted skills.
    /// - The model's calls have side effects.
    /// - The model is unknown.
    pub(crate) fn may_have_files(&self, tenant: &TenantId, profile: &SessionProfile) -> bool {
        let may_have_side_effects = || match self.unwrapped_model(tenant, profile.model.as_deref()) {
            Ok((_, model)) => hosted_sessions::has_side_effects(&*model),
            Err(_) => true,
        };
        !profile.hosted.is_empty() || may_have_side_effects()
    }

    fn unwrapped_model(
        &self,
        tenant: &TenantId,
        model: Option<&str>,
    ) -> Result<(String, Arc<dyn Model>), RuntimeError> {
        let policy = self.inner.sandboxes.policies().policy(tenant);
        let name = self.inner.models.name(&policy.models, model, &self.inner.config)?;
        Ok((name.to_owned(), self.inner.models.named(&policy.models, name, &self.inner.config)?))
    }

    /// Checks that a session of this tenant may have the model of this name.
    pub(crate) fn check_model(&self, tenant: &TenantId, name: &str) -> Result<(), RuntimeError> {
        self.unwrapped_model(tenant, Some(name)).map(drop)
    }

    /// The model of this name with these settings, for calls without a session. Its calls pass the admission gate.
    pub(crate) fn model_for_calls(
        &self,
        tenant: &TenantId,
        name: &str,
        call: &CallSettings,
    ) -> Result<Arc<dyn Model>, RuntimeError> {
        let policies = self.inner.sandboxes.policies();
        let policy = policies.policy(tenant);
        let (gate, config) = (policies.model_calls(), &self.inner.config);
        self.inner.models.find(&policy.models, name, tenant, gate, config, call)
    }

    /// The client of the Messages API behind this name, and the service's name of the model. `None` for any other model.
    #[cfg(feature = "anthropic")]
    pub(crate) fn messages_client(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Option<(crate::anthropic::Client, String)>, RuntimeError> {
        let policy = self.inner.sandboxes.policies().policy(tenant);
        self.inner.models.messages_client(&policy.models, name, &self.inner.config)
    }

    /// The names of the models that this tenant may use, including the model of sessions that name none.
    pub(crate) fn model_names(&self, tenant: &TenantId) -> Vec<String> {
        let policy = self.inner.sandboxes.policies().policy(tenant);
        let mut names = self.inner.models.names(&policy.models, &self.inner.config);
        if let Ok(default) = self.inner.models.name(&policy.models, None, &self.inner.config)
            && let Err(index) = names.binary_search_by(|name| name.as_str().cmp(default))
        {
            names.insert(index, default.to_owned());
        }
        names
    }

    /// The name of the model for a session of this tenant. `wanted` is the model that the session names, if any.
    pub(crate) fn model_name(&self, tenant: &TenantId, wanted: Option<&str>) -> Result<String, RuntimeError> {
        let policy = self.inner.sandboxes.policies().policy(tenant);
        self.inner.models.name(&policy.models, wanted, &self.inner.config).map(str::to_owned)
    }

    /// The kind of sandbox for sessions that name none.
    pub(crate) fn default_sandbox(&self) -> &'static str {
        self.inner.config.executor().as_str()
    }

    /// The data folder of a session's tenant.
    pub(crate) async fn session_tenant_dir(&self, key: &SessionKey) -> Result<Arc<TenantDir>, RuntimeError> {
        self.tenant_dir(&key.tenant).await
    }

    /// The data folder of a tenant.
    pub(crate) async fn tenant_dir(&self, tenant: &TenantId) -> Result<Arc<TenantDir>, RuntimeError> {
        let (home, tenant) = (Arc::clone(&self.inner.home), tenant.clone());
        run_blocking("the opening of a data folder", move || home.tenant(&tenant)).await
    }

    /// The data folder of a session's tenant, if it exists. Does not create it.
    pub(crate) async fn existing_tenant_dir(
        &self,
        key: &SessionKey,
    ) -> Result<Option<Arc<TenantDir>>, RuntimeError> {
        let (home, tenant) = (Arc::clone(&self.inner.home), key.tenant.clone());
        run_blocking("the opening of a data folder", move || home.existing(&tenant)).await
    }
}
