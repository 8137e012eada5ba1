//! Which models a tenant's sessions may have, and calls of models without a session.

use std::sync::Arc;

use conjure_base::TenantId;
use conjure_conversation::Model;

use crate::models::CallSettings;
use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;

impl Runtime {
    /// The name of the sandbox of sessions that name none.
    #[must_use]
    pub fn default_sandbox(&self) -> &'static str {
        self.inner.factory.default_sandbox()
    }

    /// The names of the models that were given to the runtime, to the tenant or in the configuration, in order. A session may also have the
    /// models of services under names of the form `VENDOR:NAME`.
    #[must_use]
    pub fn model_names(&self, tenant: &TenantId) -> Vec<String> {
        self.inner.factory.model_names(tenant)
    }

    /// Checks that a session of this tenant may have the model of this name. The service itself is not asked.
    ///
    /// # Errors
    ///
    /// If there is no such model, or it cannot be called.
    pub fn check_model(&self, tenant: &TenantId, name: &str) -> Result<(), RuntimeError> {
        self.inner.factory.check_model(tenant, name)
    }

    /// The model of this name for calls that no session records. Its service is told these settings; a model of the embedder has none but
    /// the number of tokens, which it is not told.
    /// It passes the gate of model calls, and the tenant's budget pays for it.
    ///
    /// # Errors
    ///
    /// If there is no such model, if it cannot be called, or if its API lacks one of the settings.
    pub fn model(
        &self,
        tenant: &TenantId,
        name: &str,
        call: &CallSettings,
    ) -> Result<Arc<dyn Model>, RuntimeError> {
        let model = self.inner.factory.model_for_calls(tenant, name, call)?;
        Ok(self.inner.tree.accounts().budgeted_model(tenant, model))
    }
}
