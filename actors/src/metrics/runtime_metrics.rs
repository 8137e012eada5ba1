//! The metrics that all sessions of a runtime share.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::TenantId;
use conjure_sandbox::{SandboxError, SandboxErrorKind};
use metrics::{Gauge, counter, gauge, histogram};

use super::bounded_labels::{BoundedLabels, Label};
use super::names;

/// The limits of label values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsOptions {
    /// How many tenants have their own series: the first ones. All others share the series `other`. 0: no tenant has one.
    pub tenants: usize,
    /// How many tools have their own series: the first ones. All others share the series `other`.
    pub tools: usize,
}

impl Default for MetricsOptions {
    /// 100 tenants, 64 tools.
    fn default() -> Self {
        Self { tenants: 100, tools: 64 }
    }
}

/// Records the metrics of a runtime. Clones share their label values.
#[derive(Debug, Clone)]
pub struct RuntimeMetrics {
    tenants: Arc<BoundedLabels>,
    tools: Arc<BoundedLabels>,
}

impl RuntimeMetrics {
    /// Metrics with these limits.
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

    /// Counts a session as live until the guard is dropped.
    pub(crate) fn live_session(&self, tenant: &TenantId) -> GaugeGuard {
        let tenant = self.tenant(tenant);
        counter!(names::SESSION_STARTS, "tenant" => Arc::clone(&tenant)).increment(1);
        GaugeGuard::new(gauge!(names::SESSIONS_LIVE, "tenant" => tenant))
    }

    /// Counts a tool call that ended, and records how long it took.
    pub(crate) fn tool_call(
        &self,
        tenant: &TenantId,
        tool: &str,
        outcome: &'static str,
        took: Option<Duration>,
    ) {
        let tenant = self.tenant(tenant);
        // The model may invent the name of a tool, and such a name may contain private text. So only a tool that
        // certainly ran gets its own series.
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

/// Records metrics of a tenant's sandboxes.
#[derive(Debug, Clone)]
pub(crate) struct SandboxMetrics {
    tenant: Label,
}

impl SandboxMetrics {
    pub(crate) fn new(metrics: &RuntimeMetrics, tenant: &TenantId) -> Self {
        Self { tenant: metrics.tenant(tenant) }
    }

    /// Counts a sandbox as live until the guard is dropped. `took`: the duration of its start.
    pub(crate) fn live(&self, took: Duration) -> GaugeGuard {
        histogram!(names::SANDBOX_START_DURATION, "tenant" => Arc::clone(&self.tenant)).record(took);
        self.started("ok");
        GaugeGuard::new(gauge!(names::SANDBOXES_LIVE, "tenant" => Arc::clone(&self.tenant)))
    }

    /// Counts a sandbox as paused until the guard is dropped.
    pub(crate) fn paused(&self) -> GaugeGuard {
        GaugeGuard::new(gauge!(names::SANDBOXES_PAUSED, "tenant" => Arc::clone(&self.tenant)))
    }

    /// Counts a failed start.
    pub(crate) fn start_failed(&self, error: &SandboxError) {
        let is_overload = error.kind() == SandboxErrorKind::Overloaded;
        self.started(if is_overload { "overloaded" } else { "failed" });
    }

    /// Counts a sandbox that ended without being stopped.
    pub(crate) fn lost(&self) {
        counter!(names::SANDBOXES_LOST, "tenant" => Arc::clone(&self.tenant)).increment(1);
    }

    fn started(&self, outcome: &'static str) {
        let tenant = Arc::clone(&self.tenant);
        counter!(names::SANDBOX_STARTS, "tenant" => tenant, "outcome" => outcome).increment(1);
    }
}

/// Adds one to a gauge until it is dropped.
pub(crate) struct GaugeGuard {
    gauge: Gauge,
}

impl GaugeGuard {
    fn new(gauge: Gauge) -> Self {
        gauge.increment(1.0);
        Self { gauge }
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.gauge.decrement(1.0);
    }
}

/// The outcome for a deleted session's files at a model's service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteDeletion {
    /// The files were deleted.
    Deleted,
    /// The files had been removed before.
    Absent,
    /// The service refuses to delete the files, and they stay.
    GivenUp,
}

impl RemoteDeletion {
    /// Counts this many files.
    pub fn count(self, files: u64) {
        let outcome = match self {
            Self::Deleted => "deleted",
            Self::Absent => "absent",
            Self::GivenUp => "given_up",
        };
        metrics::counter!(names::SERVICE_FILES, "outcome" => outcome).increment(files);
    }
}
