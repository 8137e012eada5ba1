//! What a supervisor is: its children and how they belong together.

use std::any::Any;
use std::num::NonZeroU32;
use std::sync::Arc;

use conjure_base::{SessionId, TenantId};
use futures_util::future::BoxFuture;
use ractor::{ActorCell, SpawnErr};

use super::backoff::Backoff;
use super::control::Control;
use super::error::SpecError;
use super::handle::{Supervisor, SupervisorPort};
use super::id::ChildId;
use super::life::{Life, Presence};
use super::machine::{Plan, Policy, Shape};
use super::node::{Gauge, Labels};
use super::policy::{AutoShutdown, Domain, GivenUp, Intensity, Kind, Restart, Shutdown, Strategy};
use super::slot::Slot;
use super::spec::{ChildSpec, Hatch};
use super::supervisor::Supervising;

/// How many requests may wait for a supervisor.
const REQUESTS: usize = 16_384;

/// A supervisor whose children have an order: [`SupervisorSpec::ordered`].
#[derive(Debug)]
pub struct Ordered {
    strategy: Strategy,
    auto_shutdown: AutoShutdown,
    children: Vec<Arc<ChildSpec>>,
}

/// A supervisor whose children come and go by request, each for itself: [`SupervisorSpec::dynamic`].
#[derive(Debug)]
pub struct Dynamic {
    capacity: usize,
    domain: Domain,
    quarantine_after: Option<NonZeroU32>,
    given_up: GivenUp,
}

/// What a supervisor is. Built into a [`ChildSpec`], or spawned given to [`super::Root::spawn`].
///
/// As a child it is permanent, has the default intensity and backoff, and always gets the time that its subtree needs to
/// stop.
#[derive(Debug)]
pub struct SupervisorSpec<S> {
    id: ChildId,
    shape: S,
    intensity: Intensity,
    restart: Restart,
    backoff: Backoff,
    labels: Labels,
}

impl SupervisorSpec<Ordered> {
    /// A supervisor that no child can end.
    #[must_use]
    pub fn ordered(id: ChildId, strategy: Strategy) -> Self {
        Self::with_auto_shutdown(id, strategy, AutoShutdown::Never)
    }

    /// A supervisor that its significant children can end.
    #[must_use]
    pub fn with_auto_shutdown(id: ChildId, strategy: Strategy, auto_shutdown: AutoShutdown) -> Self {
        Self::new(id, Ordered { strategy, auto_shutdown, children: Vec::new() })
    }

    /// One more child, behind the others. It is started with the supervisor, which does not start without it.
    ///
    /// # Errors
    /// When there is a child of this id, or it is significant and the supervisor never shuts down because of a child.
    pub fn child(mut self, child: ChildSpec) -> Result<Self, SpecError> {
        if self.shape.children.iter().any(|other| other.id == child.id) {
            return Err(SpecError::DuplicateId { id: child.id });
        }
        self.shape.auto_shutdown.admits(&child)?;
        self.shape.children.push(Arc::new(child));
        Ok(self)
    }

    /// The spec, and a handle on all its incarnations.
    #[must_use]
    pub fn build(mut self) -> (ChildSpec, Supervisor) {
        let children = std::mem::take(&mut self.shape.children);
        let (strategy, auto_shutdown) = (self.shape.strategy, self.shape.auto_shutdown);
        self.assemble(Shape::Ordered { strategy, auto_shutdown }, children)
    }
}

impl AutoShutdown {
    pub(crate) fn admits(self, child: &ChildSpec) -> Result<(), SpecError> {
        if self == Self::Never && child.policy.restart.is_significant() {
            return Err(SpecError::NeedsAutoShutdown { id: child.id.clone() });
        }
        Ok(())
    }
}

impl SupervisorSpec<Dynamic> {
    /// A supervisor without children, that may have any number.
    #[must_use]
    pub fn dynamic(id: ChildId) -> Self {
        let (domain, given_up) = (Domain::Together, GivenUp::default());
        Self::new(id, Dynamic { capacity: usize::MAX, domain, quarantine_after: None, given_up })
    }

    /// How many children it may have. Those that wait for their restart and those in quarantine count.
    #[must_use]
    pub fn capacity(mut self, children: usize) -> Self {
        self.shape.capacity = children;
        self
    }

    /// Who melts down when restarts are too many.
    #[must_use]
    pub fn domain(mut self, domain: Domain) -> Self {
        self.shape.domain = domain;
        self
    }

    /// What becomes of a child that is given up alone.
    #[must_use]
    pub fn given_up(mut self, given_up: GivenUp) -> Self {
        self.shape.given_up = given_up;
        self
    }

    /// Gives a child up after so many failed restarts in a row.
    #[must_use]
    pub fn quarantine_after(mut self, failed_starts: NonZeroU32) -> Self {
        self.shape.quarantine_after = Some(failed_starts);
        self
    }

    /// The spec, and a handle on all its incarnations.
    #[must_use]
    pub fn build(self) -> (ChildSpec, Supervisor) {
        let Dynamic { capacity, domain, quarantine_after, given_up } = self.shape;
        self.assemble(Shape::Dynamic { capacity, domain, quarantine_after, given_up }, Vec::new())
    }
}

impl<S> SupervisorSpec<S> {
    fn new(id: ChildId, shape: S) -> Self {
        Self {
            id,
            shape,
            intensity: Intensity::default(),
            restart: Restart::Permanent,
            backoff: Backoff::default(),
            labels: Labels::default(),
        }
    }

    /// How many restarts of its children are too many.
    #[must_use]
    pub fn intensity(mut self, intensity: Intensity) -> Self {
        self.intensity = intensity;
        self
    }

    /// When it is started again, as a child.
    #[must_use]
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// How long it waits before it is started again, as a child.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Whose it is, and everything below it that does not say otherwise.
    #[must_use]
    pub fn tenant(mut self, tenant: TenantId) -> Self {
        self.labels.tenant = Some(tenant);
        self
    }

    /// Which conversation it and everything below it belongs to.
    #[must_use]
    pub fn session(mut self, session: SessionId) -> Self {
        self.labels.session = Some(session);
        self
    }

    fn assemble(self, shape: Shape, children: Vec<Arc<ChildSpec>>) -> (ChildSpec, Supervisor) {
        let gauge = Gauge::new(REQUESTS);
        let port = Arc::new(SupervisorPort {
            id: self.id.clone(),
            slot: Arc::new(Slot::new()),
            gauge: gauge.clone(),
        });
        let plan = Plan { shape, intensity: self.intensity };
        let hatch = SupervisorHatch { port: Arc::clone(&port), plan, children: Arc::from(children) };
        // Whatever time it takes: a supervisor that is killed cannot stop its children in order.
        let policy = Policy { restart: self.restart, shutdown: Shutdown::Unlimited, backoff: self.backoff };
        let spec = ChildSpec {
            id: self.id,
            kind: Kind::Supervisor,
            policy,
            labels: self.labels,
            gauge,
            hatch: Arc::new(hatch),
        };
        (spec, Supervisor::new(port))
    }
}

/// What makes a supervisor's incarnations.
pub(crate) struct SupervisorHatch {
    port: Arc<SupervisorPort>,
    plan: Plan,
    children: Arc<[Arc<ChildSpec>]>,
}

impl Hatch for SupervisorHatch {
    fn next_incarnation(&self) -> u64 {
        self.port.slot.next_incarnation()
    }

    fn spawn(
        &self,
        presence: Arc<Presence>,
        supervisor: Option<ActorCell>,
    ) -> BoxFuture<'static, Result<(), SpawnErr>> {
        let supervising = Supervising::new(&self.port, self.plan, Arc::clone(&self.children), presence);
        Box::pin(supervising.spawn(supervisor))
    }

    fn stop(&self, life: &Life) {
        life.stopping.cancel();
        if let Some(cell) = life.cell.get() {
            // It is over.
            let _ = cell.send_message(Control::Stop);
        }
    }

    fn port(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.port) as Arc<dyn Any + Send + Sync>
    }
}
