//! Queries of the session factory about the tenants of its runtime: their directories, their models and their MCP servers.

use std::sync::Arc;

use conjure_artifact::ServiceFileDeletion;
#[cfg(feature = "mcp")]
use conjure_base::Deadline;
use conjure_base::TenantId;
use conjure_conversation::{Model, SessionProfile};
use conjure_journal::SessionKey;

use crate::models::CallSettings;
use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::session::factory::hosted_sessions;
use crate::runtime::session::factory::session_factory::RuntimeSessionFactory;
use crate::runtime::task_set::run_blocking;

impl RuntimeSessionFactory {
    /// Fails if the tenant is being deleted.
    pub(crate) async fn check_tenant(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        let (inner, tenant) = (Arc::clone(&self.inner), tenant.clone());
        run_blocking("checking whether a tenant is being deleted", move || inner.deletions.check(&tenant))
            .await
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

    /// The data directory of a tenant.
    pub(crate) async fn tenant_dir(&self, tenant: &TenantId) -> Result<Arc<TenantDir>, RuntimeError> {
        let (home, tenant) = (Arc::clone(&self.inner.home), tenant.clone());
        run_blocking("the opening of a data directory", move || home.tenant(&tenant)).await
    }

    /// The data directory of a session's tenant, if it exists. Does not create it.
    pub(crate) async fn existing_tenant_dir(
        &self,
        key: &SessionKey,
    ) -> Result<Option<Arc<TenantDir>>, RuntimeError> {
        let (home, tenant) = (Arc::clone(&self.inner.home), key.tenant.clone());
        run_blocking("the opening of a data directory", move || home.existing(&tenant)).await
    }
}
