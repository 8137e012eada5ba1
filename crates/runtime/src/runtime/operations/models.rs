//! Which models a tenant's sessions may have.

use conjure_base::TenantId;

use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;

impl Runtime {
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
}
