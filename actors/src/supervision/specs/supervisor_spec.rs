//! The spec of a supervisor: its children and how they relate.

use std::any::Any;
use std::num::NonZeroU32;
use std::sync::Arc;

use conjure_base::{SessionId, TenantId};
use futures_util::future::BoxFuture;
use ractor::{ActorCell, SpawnErr};

use super::backoff::Backoff;
use super::id::{ChildId, SpecError};
use super::policy::{AutoShutdown, Intensity, IntensityScope, Kind, OnLimit, Restart, Shutdown, Strategy};
use super::spec::{ChildFactory, ChildSpec};
use crate::supervision::handles::handle::{Supervisor, SupervisorEndpoint};
use crate::supervision::machine::{ChildPolicy, ChildrenKind, SupervisorPolicy};
use crate::supervision::running::actor_slot::ActorSlot;
use crate::supervision::running::incarnation::{Incarnation, IncarnationGuard};
use crate::supervision::running::node::{ActorLabels, MailboxGauge};
use crate::supervision::running::supervisor_actor::SupervisorActor;
use crate::supervision::running::supervisor_message::SupervisorMessage;

/// How many requests may wait for a supervisor.
const REQUESTS: usize = 16_384;

/// Type parameter of a supervisor whose children have an order: [`SupervisorSpec::ordered`].
#[derive(Debug)]
pub struct Ordered {
    strategy: Strategy,
    auto_shutdown: AutoShutdown,
    children: Vec<Arc<ChildSpec>>,
}

/// Type parameter of a supervisor whose children are started and terminated by requests: [`SupervisorSpec::dynamic`].
#[derive(Debug)]
pub struct Dynamic {
    capacity: usize,
    intensity_scope: IntensityScope,
    quarantine_after: Option<NonZeroU32>,
    on_limit: OnLimit,
}

/// The spec of a supervisor, before it is built into a [`ChildSpec`] or given to [`crate::supervision::Root::spawn`].
///
/// As a child, a supervisor is permanent by default, and has the default restart limit and backoff. It always gets the
/// time that its subtree needs to stop.
#[derive(Debug)]
pub struct SupervisorSpec<S> {
    id: ChildId,
    children_kind: S,
    intensity: Intensity,
    restart: Restart,
    backoff: Backoff,
    labels: ActorLabels,
}

impl SupervisorSpec<Ordered> {
    /// A supervisor whose children have an order, without automatic shutdown.
    #[must_use]
    pub fn ordered(id: ChildId, strategy: Strategy) -> Self {
        Self::with_auto_shutdown(id, strategy, AutoShutdown::Never)
    }

    /// A supervisor whose children have an order. The end of its significant children can stop it.
    #[must_use]
    pub fn with_auto_shutdown(id: ChildId, strategy: Strategy, auto_shutdown: AutoShutdown) -> Self {
        Self::new(id, Ordered { strategy, auto_shutdown, children: Vec::new() })
    }

    /// Adds a child after the others. The supervisor starts it during its own start, and does not start without it.
    ///
    /// # Errors
    /// If there is a child with this id, or if the child is significant and the supervisor has no automatic shutdown.
    pub fn child(mut self, child: ChildSpec) -> Result<Self, SpecError> {
        if self.children_kind.children.iter().any(|other| other.id == child.id) {
            return Err(SpecError::DuplicateId { id: child.id });
        }
        self.children_kind.auto_shutdown.check_child(&child)?;
        self.children_kind.children.push(Arc::new(child));
        Ok(self)
    }

    /// Returns the spec, and a handle that is valid for all incarnations.
    #[must_use]
    pub fn build(mut self) -> (ChildSpec, Supervisor) {
        let children = std::mem::take(&mut self.children_kind.children);
        let (strategy, auto_shutdown) = (self.children_kind.strategy, self.children_kind.auto_shutdown);
        self.assemble(ChildrenKind::Ordered { strategy, auto_shutdown }, children)
    }
}

impl AutoShutdown {
    pub(crate) fn check_child(self, child: &ChildSpec) -> Result<(), SpecError> {
        if self == Self::Never && child.policy.restart.is_significant() {
            return Err(SpecError::NeedsAutoShutdown { id: child.id.clone() });
        }
        Ok(())
    }
}

impl SupervisorSpec<Dynamic> {
    /// A supervisor without initial children. Callers start any number of children by requests.
    #[must_use]
    pub fn dynamic(id: ChildId) -> Self {
        let (intensity_scope, on_limit) = (IntensityScope::Shared, OnLimit::default());
        Self::new(id, Dynamic { capacity: usize::MAX, intensity_scope, quarantine_after: None, on_limit })
    }

    /// Sets how many children it may have. Children that wait for their restart and children in quarantine count.
    #[must_use]
    pub fn capacity(mut self, children: usize) -> Self {
        self.children_kind.capacity = children;
        self
    }

    /// Sets what the supervisor gives up when children restart too often.
    #[must_use]
    pub fn intensity_scope(mut self, intensity_scope: IntensityScope) -> Self {
        self.children_kind.intensity_scope = intensity_scope;
        self
    }

    /// Sets what happens to a child that the supervisor gives up.
    #[must_use]
    pub fn on_limit(mut self, on_limit: OnLimit) -> Self {
        self.children_kind.on_limit = on_limit;
        self
    }

    /// Gives up a child after this many failed restarts in a row.
    #[must_use]
    pub fn quarantine_after(mut self, failed_starts: NonZeroU32) -> Self {
        self.children_kind.quarantine_after = Some(failed_starts);
        self
    }

    /// Returns the spec, and a handle that is valid for all incarnations.
    #[must_use]
    pub fn build(self) -> (ChildSpec, Supervisor) {
        let Dynamic { capacity, intensity_scope, quarantine_after, on_limit } = self.children_kind;
        self.assemble(
            ChildrenKind::Dynamic { capacity, intensity_scope, quarantine_after, on_limit },
            Vec::new(),
        )
    }
}

impl<S> SupervisorSpec<S> {
    fn new(id: ChildId, children_kind: S) -> Self {
        Self {
            id,
            children_kind,
            intensity: Intensity::default(),
            restart: Restart::Permanent,
            backoff: Backoff::default(),
            labels: ActorLabels::default(),
        }
    }

    /// Sets the restart limit of its children.
    #[must_use]
    pub fn intensity(mut self, intensity: Intensity) -> Self {
        self.intensity = intensity;
        self
    }

    /// Sets when its own supervisor restarts it.
    #[must_use]
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// Sets the delays before its own restarts.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets its tenant. Everything below it without a tenant of its own inherits this.
    #[must_use]
    pub fn tenant(mut self, tenant: TenantId) -> Self {
        self.labels.tenant = Some(tenant);
        self
    }

    /// Sets its session. Everything below it without a session of its own inherits this.
    #[must_use]
    pub fn session(mut self, session: SessionId) -> Self {
        self.labels.session = Some(session);
        self
    }

    fn assemble(self, children_kind: ChildrenKind, children: Vec<Arc<ChildSpec>>) -> (ChildSpec, Supervisor) {
        let gauge = MailboxGauge::new(REQUESTS);
        let endpoint = Arc::new(SupervisorEndpoint {
            id: self.id.clone(),
            slot: Arc::new(ActorSlot::new()),
            gauge: gauge.clone(),
        });
        let supervisor_policy = SupervisorPolicy { children_kind, intensity: self.intensity };
        let factory = SupervisorFactory {
            endpoint: Arc::clone(&endpoint),
            supervisor_policy,
            children: Arc::from(children),
        };
        // No time limit, because a killed supervisor cannot stop its children in order.
        let policy =
            ChildPolicy { restart: self.restart, shutdown: Shutdown::Unlimited, backoff: self.backoff };
        let spec = ChildSpec {
            id: self.id,
            kind: Kind::Supervisor,
            policy,
            labels: self.labels,
            gauge,
            factory: Arc::new(factory),
        };
        (spec, Supervisor::new(endpoint))
    }
}

/// Creates the incarnations of a supervisor.
pub(crate) struct SupervisorFactory {
    endpoint: Arc<SupervisorEndpoint>,
    supervisor_policy: SupervisorPolicy,
    children: Arc<[Arc<ChildSpec>]>,
}

impl ChildFactory for SupervisorFactory {
    fn next_incarnation(&self) -> u64 {
        self.endpoint.slot.next_incarnation()
    }

    fn spawn(
        &self,
        guard: Arc<IncarnationGuard>,
        supervisor: Option<ActorCell>,
    ) -> BoxFuture<'static, Result<(), SpawnErr>> {
        let actor =
            SupervisorActor::new(&self.endpoint, self.supervisor_policy, Arc::clone(&self.children), guard);
        Box::pin(actor.spawn(supervisor))
    }

    fn stop(&self, incarnation: &Incarnation) {
        incarnation.stopping.cancel();
        if let Some(cell) = incarnation.cell.get() {
            // If the send fails, the actor has ended already.
            let _ = cell.send_message(SupervisorMessage::Stop);
        }
    }

    fn endpoint(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.endpoint) as Arc<dyn Any + Send + Sync>
    }
}
