//! A model whose calls pass an admission gate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock, TenantId};
use conjure_conversation::{Model, ModelError, ModelErrorKind, ModelStream, Request};
use futures_util::future::{Either, ready};
use futures_util::{FutureExt as _, StreamExt as _, stream};

use super::admission_gate::{AdmissionGate, Overloaded};

/// A model whose calls wait until the gate admits one more call of the tenant. The permit is held until the response's
/// stream has ended or is dropped.
pub struct AdmittedModel {
    model: Arc<dyn Model>,
    gate: AdmissionGate,
    tenant: TenantId,
    timeout: Duration,
}

impl AdmittedModel {
    /// Puts this gate in front of this model, for this tenant. A call that is not admitted within `timeout` fails with
    /// [`ModelErrorKind::Overloaded`].
    #[must_use]
    pub fn new(model: Arc<dyn Model>, gate: AdmissionGate, tenant: TenantId, timeout: Duration) -> Self {
        Self { model, gate, tenant, timeout }
    }
}

impl Model for AdmittedModel {
    fn stream(&self, request: Request) -> ModelStream {
        let (model, gate, tenant) = (Arc::clone(&self.model), self.gate.clone(), self.tenant.clone());
        let timeout = self.timeout;
        let admitted = async move { gate.admit(&tenant, SystemClock.deadline(timeout)).await };
        let answering = admitted.map(move |admitted| match admitted {
            Ok(permit) => Either::Left(model.stream(request).inspect(move |_| {
                // The stream holds the permit until it is dropped.
                let _ = &permit;
            })),
            Err(refused) => Either::Right(stream::once(ready(Err(refused.into())))),
        });
        answering.into_stream().flatten().boxed()
    }

    fn inner(&self) -> Option<&dyn Model> {
        Some(&self.model)
    }
}

impl From<Overloaded> for ModelError {
    fn from(overloaded: Overloaded) -> Self {
        let retry_after = overloaded.retry_after;
        Self { retry_after, ..Self::new(ModelErrorKind::Overloaded, overloaded.to_string()) }
    }
}

impl fmt::Debug for AdmittedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmittedModel")
            .field("gate", &self.gate)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}
