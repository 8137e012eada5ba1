//! [`MessagesService`]: requests to the Messages API that are passed on to the service behind a model.

use conjure_actors::admission::AdmissionGate;
use conjure_base::{Clock as _, SystemClock, TenantId};
use conjure_conversation::ModelError;
use futures_util::StreamExt as _;

use crate::anthropic::{Client, PassthroughRequest, PassthroughResponse};
use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::model_registry::ADMISSION_TIMEOUT;

/// The service of the Messages API behind a model, for one tenant. Requests are passed on as they are, with the configured key and the
/// service's name of the model.
#[derive(Debug, Clone)]
pub struct MessagesService {
    client: Client,
    model: String,
    gate: AdmissionGate,
    tenant: TenantId,
}

impl Runtime {
    /// The service of the Messages API behind the model of this name. `None` if the model has another one, and if the tenant has a budget:
    /// nobody counts what is passed on. [`Runtime::model`] is for both.
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
        let gate = self.inner.factory.policies().model_calls().clone();
        let client = self.inner.factory.messages_client(tenant, name)?;
        Ok(client.map(|(client, model)| MessagesService { client, model, gate, tenant: tenant.clone() }))
    }
}

impl MessagesService {
    /// The service's name of the model.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Passes a request on. The place at the gate of model calls is held until the body has ended.
    ///
    /// # Errors
    ///
    /// If the call is not admitted, or the service does not begin to answer.
    pub async fn pass_on(&self, request: PassthroughRequest) -> Result<PassthroughResponse, ModelError> {
        let permit = self.gate.admit(&self.tenant, SystemClock.deadline(ADMISSION_TIMEOUT)).await?;
        let answer = self.client.pass_on(request).await?;
        let body = answer.body.inspect(move |_| {
            let _ = &permit;
        });
        Ok(PassthroughResponse { body: Box::pin(body), ..answer })
    }
}
