//! The models of a tenant, and model calls without a session.

use std::sync::Arc;

use conjure_base::TenantId;
use conjure_conversation::Model;

use crate::models::CallSettings;
use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;

impl Runtime {
    /// The name of the sandbox that sessions get if they name none.
    #[must_use]
    pub fn default_sandbox(&self) -> &'static str {
        self.inner.factory.config.executor().as_str()
    }

    /// The names of the models that the embedder, the tenant and the configuration define, in order. A session may also
    /// use models of services under names of the form `VENDOR:NAME`.
    #[must_use]
    pub fn model_names(&self, tenant: &TenantId) -> Vec<String> {
        self.inner.factory.model_names(tenant)
    }

    /// Checks that a session of this tenant may use the model of this name. The service is not called.
    ///
    /// # Errors
    ///
    /// If there is no such model, or it cannot be called.
    pub fn check_model(&self, tenant: &TenantId, name: &str) -> Result<(), RuntimeError> {
        self.inner.factory.check_model(tenant, name)
    }

    /// The model of this name, for calls that no session records. Each call passes the gate of model calls, and the
    /// tenant's budget pays for it.
    ///
    /// The settings are sent to the model's service. A model of the embedder gets none of them. For such a model it is
    /// an error to set anything except the number of tokens and settings that APIs may ignore.
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
