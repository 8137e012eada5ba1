//! [`MessagesService`]: forwards requests of the Messages API to the service behind a model.

use conjure_actors::admission::AdmissionGate;
use conjure_base::{Clock as _, SystemClock, TenantId};
use conjure_conversation::ModelError;
use futures_util::StreamExt as _;

use crate::anthropic::{Client, PassthroughRequest, PassthroughResponse};
use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::model_registry::ADMISSION_TIMEOUT;

/// The service of the Messages API behind a model, for one tenant. It forwards requests unchanged, except for the
/// configured key and the service's name of the model.
#[derive(Debug, Clone)]
pub struct MessagesService {
    client: Client,
    model: String,
    gate: AdmissionGate,
    tenant: TenantId,
}

impl Runtime {
    /// The service of the Messages API behind the model of this name. Returns `None` in two cases, in which
    /// [`Runtime::model`] can be used instead:
    ///
    /// - The model is not called through the Messages API.
    /// - The tenant has a budget: the usage of forwarded requests is not counted.
    ///
    /// # Errors
    ///
    /// If there is no such model, or it cannot be called.
    pub fn messages_service(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Option<MessagesService>, RuntimeError> {
        if !self.inner.tree.accounts().limits(tenant).budget.allowances().is_empty() {
            return Ok(None);
        }
        let gate = self.inner.factory.sandboxes.policies().model_calls().clone();
        let client = self.inner.factory.messages_client(tenant, name)?;
        Ok(client.map(|(client, model)| MessagesService { client, model, gate, tenant: tenant.clone() }))
    }
}

impl MessagesService {
    /// The name that the service uses for the model.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Forwards a request. It holds a permit of the gate of model calls until the response body ends.
    ///
    /// # Errors
    ///
    /// If the call is not admitted, or the service does not start a response.
    pub async fn pass_on(&self, request: PassthroughRequest) -> Result<PassthroughResponse, ModelError> {
        let permit = self.gate.admit(&self.tenant, SystemClock.deadline(ADMISSION_TIMEOUT)).await?;
        let answer = self.client.pass_on(request).await?;
        let body = answer.body.inspect(move |_| {
            let _ = &permit;
        });
        Ok(PassthroughResponse { body: Box::pin(body), ..answer })
    }
}
