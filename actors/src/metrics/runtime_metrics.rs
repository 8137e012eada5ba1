//! What all sessions of a runtime are counted with.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::TenantId;
use conjure_sandbox::{SandboxError, SandboxErrorKind};
use metrics::{Gauge, counter, gauge, histogram};

use super::bounded_labels::{BoundedLabels, Label};
use super::names;

/// How a runtime counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsOptions {
    /// How many tenants have series of their own, the first ones that are seen; all others are `other` together. 0: nobody is told
    /// apart.
    pub tenants: usize,
    /// How many tools have.
    pub tools: usize,
}

impl Default for MetricsOptions {
    /// 100 tenants, 64 tools.
    fn default() -> Self {
        Self { tenants: 100, tools: 64 }
    }
}

/// Counts what happens in a runtime. Clones count together.
#[derive(Debug, Clone)]
pub struct RuntimeMetrics {
    tenants: Arc<BoundedLabels>,
    tools: Arc<BoundedLabels>,
}

impl RuntimeMetrics {
    /// Counts so.
    #[must_use]
    pub fn new(options: MetricsOptions) -> Self {
        Self {
            tenants: Arc::new(BoundedLabels::new(options.tenants)),
            tools: Arc::new(BoundedLabels::new(options.tools)),
        }
    }

    pub(crate) fn tenant(&self, tenant: &TenantId) -> Label {
        self.tenants.get_or_add(tenant.as_str())
    }

    /// A session is live for as long as this is kept.
    pub(crate) fn live_session(&self, tenant: &TenantId) -> GaugeGuard {
        let tenant = self.tenant(tenant);
        counter!(names::SESSION_STARTS, "tenant" => Arc::clone(&tenant)).increment(1);
        GaugeGuard::new(gauge!(names::SESSIONS_LIVE, "tenant" => tenant))
    }

    /// A tool call ended.
    pub(crate) fn tool_call(
        &self,
        tenant: &TenantId,
        tool: &str,
        outcome: &'static str,
        took: Option<Duration>,
    ) {
        let tenant = self.tenant(tenant);
        // A name that nobody has is the model's invention, and may hold what it was told: only what surely ran gets a series.
        let tool = match outcome {
            "ok" | "error" | "timed_out" => self.tools.get_or_add(tool),
            _ => self.tools.get(tool),
        };
        counter!(names::TOOL_CALLS, "tenant" => Arc::clone(&tenant), "tool" => Arc::clone(&tool), "outcome" => outcome)
            .increment(1);
        if let Some(took) = took {
            histogram!(names::TOOL_CALL_DURATION, "tenant" => tenant, "tool" => tool).record(took);
        }
    }
}

/// Counts the sandboxes of a tenant.
#[derive(Debug, Clone)]
pub(crate) struct SandboxMetrics {
    tenant: Label,
}

impl SandboxMetrics {
    pub(crate) fn new(metrics: &RuntimeMetrics, tenant: &TenantId) -> Self {
        Self { tenant: metrics.tenant(tenant) }
    }

    /// One serves calls for as long as this is kept; making it took so long.
    pub(crate) fn live(&self, took: Duration) -> GaugeGuard {
        histogram!(names::SANDBOX_START_DURATION, "tenant" => Arc::clone(&self.tenant)).record(took);
        self.started("ok");
        GaugeGuard::new(gauge!(names::SANDBOXES_LIVE, "tenant" => Arc::clone(&self.tenant)))
    }

    /// One is paused for as long as this is kept.
    pub(crate) fn paused(&self) -> GaugeGuard {
        GaugeGuard::new(gauge!(names::SANDBOXES_PAUSED, "tenant" => Arc::clone(&self.tenant)))
    }

    /// One was not made.
    pub(crate) fn start_failed(&self, error: &SandboxError) {
        let is_overload = error.kind() == SandboxErrorKind::Overloaded;
        self.started(if is_overload { "overloaded" } else { "failed" });
    }

    /// One ended without having been told to.
    pub(crate) fn lost(&self) {
        counter!(names::SANDBOXES_LOST, "tenant" => Arc::clone(&self.tenant)).increment(1);
    }

    fn started(&self, outcome: &'static str) {
        let tenant = Arc::clone(&self.tenant);
        counter!(names::SANDBOX_STARTS, "tenant" => tenant, "outcome" => outcome).increment(1);
    }
}

/// One in a gauge, until it is dropped.
pub(crate) struct GaugeGuard {
    gauge: Gauge,
}

impl GaugeGuard {
    fn new(gauge: Gauge) -> Self {
        gauge.increment(1.0);
        Self { gauge }
    }
}

impl fmt::Debug for GaugeGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").finish_non_exhaustive()
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.gauge.decrement(1.0);
    }
}

/// What became of files at a model's service that were to be deleted with their session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteDeletion {
    /// They are deleted.
    Deleted,
    /// They were gone.
    Absent,
    /// They stay: the service refuses.
    GivenUp,
}

impl RemoteDeletion {
    /// Counts so many.
    pub fn count(self, files: u64) {
        let outcome = match self {
            Self::Deleted => "deleted",
            Self::Absent => "absent",
            Self::GivenUp => "given_up",
        };
        metrics::counter!(names::SERVICE_FILES, "outcome" => outcome).increment(files);
    }
}
