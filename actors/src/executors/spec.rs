//! The specs of a session's sandbox supervisor.

use std::sync::Arc;

use super::lazy_supervisor::{LazySupervisor, SupervisorRef, supervisor};
use super::notice::ModelNotice;
use super::options::ExecutorOptions;
use super::sandbox_slot::{SandboxLifecycle, SandboxSlot};
use super::source::ExecutorSource;
use super::supervised_executor::SupervisedExecutor;
use crate::metrics::SandboxMetrics;
use crate::supervision::{ChildId, ChildScope, ChildSpec, SpecError};

/// The id of the supervisor of a session's sandbox.
const SUPERVISOR: &str = "executors";

/// Builds a session's supervised executor once the source of its sandboxes is known.
#[derive(Debug, Clone)]
pub struct SupervisedExecutorBuilder {
    /// The scope below which the first call starts the sandbox's supervisor.
    child_scope: ChildScope,
    options: ExecutorOptions,
    prior_sandbox: PriorSandbox,
    lifecycle: Arc<SandboxLifecycle>,
    metrics: Option<SandboxMetrics>,
}

/// Whether a session had a sandbox before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorSandbox {
    /// It had none.
    None,
    /// It had one, which ended when the session was passivated or the process ended.
    Existed,
}

impl SupervisedExecutorBuilder {
    /// A builder below this incarnation of a session.
    pub(crate) fn new(options: ExecutorOptions, child_scope: ChildScope) -> Self {
        Self {
            child_scope,
            options,
            prior_sandbox: PriorSandbox::None,
            lifecycle: Arc::default(),
            metrics: None,
        }
    }

    pub(crate) fn with_metrics(mut self, metrics: SandboxMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    pub(crate) fn with_prior_sandbox(mut self, prior_sandbox: PriorSandbox) -> Self {
        self.prior_sandbox = prior_sandbox;
        self
    }

    /// The lifecycle of the sandboxes. They are created one at a time, until the lifecycle is [closed](SandboxLifecycle::close).
    pub(crate) fn lifecycle(&self) -> Arc<SandboxLifecycle> {
        Arc::clone(&self.lifecycle)
    }

    /// A supervised executor for the session's tools, with sandboxes of this source. No sandbox is created before the first call.
    /// If a revived session had a sandbox before, the first result tells the model that it ended.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn supervise(self, source: Arc<dyn ExecutorSource>) -> Result<SupervisedExecutor, SpecError> {
        let id = ChildId::new(SUPERVISOR)?;
        let supervisor = SupervisorRef::Lazy(LazySupervisor::new(id, &self.options, self.child_scope));
        supervise(source, supervisor, self.prior_sandbox, self.options, self.lifecycle, self.metrics)
    }

    /// A supervised executor for another sandbox of the session, beside the one of its tools. Its supervisor has this id. The
    /// sandbox ends with the session, as the tools' sandbox does.
    ///
    /// # Errors
    /// If the id is not valid.
    pub fn supervise_additional(
        &self,
        id: &str,
        source: Arc<dyn ExecutorSource>,
    ) -> Result<SupervisedExecutor, SpecError> {
        let id = ChildId::new(id)?;
        let supervisor =
            SupervisorRef::Lazy(LazySupervisor::new(id, &self.options, self.child_scope.clone()));
        let lifecycle = self.lifecycle.new_sibling();
        supervise(source, supervisor, PriorSandbox::None, self.options, lifecycle, self.metrics.clone())
    }

    /// A supervised executor that may outlive the session, and the spec of its supervisor, which has this id. The caller may start
    /// the supervisor anywhere. The executor works while the supervisor runs.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn supervise_detached(
        &self,
        id: ChildId,
        source: Arc<dyn ExecutorSource>,
    ) -> Result<(ChildSpec, SupervisedExecutor), SpecError> {
        detached(id, source, self.options, PriorSandbox::None, self.metrics.clone())
    }
}

impl SupervisedExecutor {
    /// A supervised executor for a tree of your own, and the spec of its supervisor, which has this id. The executor works while the
    /// supervisor runs. No sandbox is created before the first call. If the session had a sandbox before, the first result tells the
    /// model that it ended.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn detached(
        id: ChildId,
        source: Arc<dyn ExecutorSource>,
        options: ExecutorOptions,
        prior_sandbox: PriorSandbox,
    ) -> Result<(ChildSpec, Self), SpecError> {
        detached(id, source, options, prior_sandbox, None)
    }
}

fn detached(
    id: ChildId,
    source: Arc<dyn ExecutorSource>,
    options: ExecutorOptions,
    prior_sandbox: PriorSandbox,
    metrics: Option<SandboxMetrics>,
) -> Result<(ChildSpec, SupervisedExecutor), SpecError> {
    let (spec, supervisor) = supervisor(id, options.intensity, options.attempts);
    let supervisor = SupervisorRef::InTree(supervisor);
    Ok((spec, supervise(source, supervisor, prior_sandbox, options, Arc::default(), metrics)?))
}

fn supervise(
    source: Arc<dyn ExecutorSource>,
    supervisor: SupervisorRef,
    prior_sandbox: PriorSandbox,
    options: ExecutorOptions,
    lifecycle: Arc<SandboxLifecycle>,
    metrics: Option<SandboxMetrics>,
) -> Result<SupervisedExecutor, SpecError> {
    let notice = (prior_sandbox == PriorSandbox::Existed).then(|| ModelNotice::revived(source.isolation()));
    let slot = Arc::new(SandboxSlot::new(notice, lifecycle, metrics));
    Ok(SupervisedExecutor::new(ChildId::new("executor")?, source, supervisor, slot, options))
}
