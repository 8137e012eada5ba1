//! A source of sandboxes that pass an admission gate.

use std::sync::Arc;

use conjure_base::{Clock as _, Deadline, SystemClock, TenantId};
use conjure_sandbox::{Executor, Isolation, Layout, SandboxError, SandboxErrorKind};
use futures_util::future::BoxFuture;

use super::admission_gate::{AdmissionGate, Overloaded, Permit};
use crate::executors::ExecutorSource;

/// A source whose sandboxes wait until the gate admits one more sandbox of the tenant. The permit is held until nothing
/// of the sandbox is left.
#[derive(Debug)]
pub struct AdmittedSource {
    source: Arc<dyn ExecutorSource>,
    gate: AdmissionGate,
    tenant: TenantId,
}

impl AdmittedSource {
    /// Puts this gate in front of this source, for this tenant.
    #[must_use]
    pub fn new(source: Arc<dyn ExecutorSource>, gate: AdmissionGate, tenant: TenantId) -> Self {
        Self { source, gate, tenant }
    }
}

impl ExecutorSource for AdmittedSource {
    fn layout(&self) -> &Layout {
        self.source.layout()
    }

    fn isolation(&self) -> Isolation {
        self.source.isolation()
    }

    fn acquire_permit(&self, deadline: Deadline) -> BoxFuture<'_, Result<Option<Permit>, SandboxError>> {
        Box::pin(async move {
            let permit = self.gate.admit(&self.tenant, deadline_before(deadline)).await?;
            Ok(Some(permit))
        })
    }

    fn create(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        self.source.create(deadline)
    }
}

/// The deadline for the wait for admission, if the start must end by `deadline`. A tenth of the time remains for the
/// start itself, or for returning an error to the caller in time.
pub(crate) fn deadline_before(deadline: Deadline) -> Deadline {
    let left = SystemClock.remaining(deadline);
    SystemClock.deadline(left.saturating_sub(left / 10)).min(deadline)
}

impl From<Overloaded> for SandboxError {
    fn from(overloaded: Overloaded) -> Self {
        let error = Self::new(SandboxErrorKind::Overloaded, overloaded.to_string());
        match overloaded.retry_after {
            Some(after) => error.after(after),
            None => error,
        }
    }
}
