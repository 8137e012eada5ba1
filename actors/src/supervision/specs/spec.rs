//! The spec of a child: how it is started, stopped and restarted.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{SessionId, TenantId};
use futures_util::future::BoxFuture;
use ractor::{ActorCell, SpawnErr};

use super::backoff::Backoff;
use super::exit::Failure;
use super::id::ChildId;
use super::policy::{Kind, Restart, Shutdown};
use crate::supervision::handles::address::{Address, WorkerEndpoint};
use crate::supervision::handles::context::Context;
use crate::supervision::handles::worker::Worker;
use crate::supervision::machine::ChildPolicy;
use crate::supervision::running::actor_slot::ActorSlot;
use crate::supervision::running::incarnation::{Incarnation, IncarnationGuard};
use crate::supervision::running::node::{ActorLabels, MailboxGauge};
use crate::supervision::running::worker_actor::{Start, WorkerActor, WorkerFactory};

/// The spec of one child, a worker or a supervisor. [`WorkerSpec::build`] and
/// [`crate::supervision::SupervisorSpec::build`] create it.
///
/// A spec belongs to one place in the tree. The supervisor there uses it for all incarnations of the child.
pub struct ChildSpec {
    pub(crate) id: ChildId,
    pub(crate) kind: Kind,
    pub(crate) policy: ChildPolicy,
    pub(crate) labels: ActorLabels,
    pub(crate) gauge: MailboxGauge,
    pub(crate) factory: Arc<dyn ChildFactory>,
}

impl ChildSpec {
    /// The child's id.
    #[must_use]
    pub fn id(&self) -> &ChildId {
        &self.id
    }

    /// The kind of the child.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec").field("id", &self.id).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Creates the incarnations of one child.
pub(crate) trait ChildFactory: Send + Sync {
    /// The number of the next incarnation.
    fn next_incarnation(&self) -> u64;
    /// Starts an actor for `guard`, linked to `supervisor`. Runs no code of the child.
    fn spawn(
        &self,
        guard: Arc<IncarnationGuard>,
        supervisor: Option<ActorCell>,
    ) -> BoxFuture<'static, Result<(), SpawnErr>>;
    /// Asks an incarnation to stop.
    fn stop(&self, incarnation: &Incarnation);
    /// The child's endpoint. It is type-erased, because a supervisor does not know the message types of its children.
    fn endpoint(&self) -> Arc<dyn Any + Send + Sync>;
}

/// The spec of a worker, before it is built into a [`ChildSpec`].
pub struct WorkerSpec<W: Worker> {
    id: ChildId,
    start: Arc<Start<W>>,
    policy: ChildPolicy,
    labels: ActorLabels,
    start_timeout: Duration,
    idle_after: Option<Duration>,
    queue: usize,
}

impl<W: Worker> WorkerSpec<W> {
    /// A permanent worker with 30 s to start, 5 s to stop, and a queue of 1,024 messages.
    ///
    /// `start` creates the worker. It runs for each incarnation on the worker's own task, after the worker was linked
    /// to its supervisor. It must end within the start timeout. If the worker must stop, `start` is dropped at an
    /// await.
    pub fn new<F, Fut>(id: ChildId, start: F) -> Self
    where
        F: Fn(Context<W::Message>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<W, Failure>> + Send + 'static,
    {
        let policy = ChildPolicy {
            restart: Restart::Permanent,
            shutdown: Shutdown::default(),
            backoff: Backoff::default(),
        };
        Self {
            id,
            start: Arc::new(move |context| Box::pin(start(context))),
            policy,
            labels: ActorLabels::default(),
            start_timeout: Duration::from_secs(30),
            idle_after: None,
            queue: 1024,
        }
    }

    /// Sets when it is restarted.
    #[must_use]
    pub fn restart(mut self, restart: Restart) -> Self {
        self.policy.restart = restart;
        self
    }

    /// Sets how it is stopped.
    #[must_use]
    pub fn shutdown(mut self, shutdown: Shutdown) -> Self {
        self.policy.shutdown = shutdown;
        self
    }

    /// Sets the delays before restarts.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// Sets the time limit of its start.
    #[must_use]
    pub fn start_timeout(mut self, time: Duration) -> Self {
        self.start_timeout = time;
        self
    }

    /// Passivates the worker when it was idle for this time: no message came, and no tracked work ran except background
    /// work. The worker then stops normally by itself. Make it transient or temporary; otherwise its supervisor
    /// restarts it at once. The next sender gets [`crate::supervision::SendError::NotRunning`], and must start the
    /// worker again.
    #[must_use]
    pub fn passivate_after(mut self, time: Duration) -> Self {
        self.idle_after = Some(time);
        self
    }

    /// Sets how many messages may wait for it; at least 1.
    #[must_use]
    pub fn queue(mut self, messages: usize) -> Self {
        self.queue = messages;
        self
    }

    /// Sets its tenant. The default is its supervisor's tenant.
    #[must_use]
    pub fn tenant(mut self, tenant: TenantId) -> Self {
        self.labels.tenant = Some(tenant);
        self
    }

    /// Sets its session. The default is its supervisor's session.
    #[must_use]
    pub fn session(mut self, session: SessionId) -> Self {
        self.labels.session = Some(session);
        self
    }

    /// Returns the spec, and an address that is valid for all incarnations.
    #[must_use]
    pub fn build(self) -> (ChildSpec, Address<W::Message>) {
        let gauge = MailboxGauge::new(self.queue);
        let endpoint = Arc::new(WorkerEndpoint {
            id: self.id.clone(),
            slot: Arc::new(ActorSlot::new()),
            gauge: gauge.clone(),
        });
        let factory: WorkerFactory<W> = WorkerFactory {
            endpoint: Arc::clone(&endpoint),
            start: self.start,
            start_timeout: self.start_timeout,
            idle_after: self.idle_after,
        };
        let spec = ChildSpec {
            id: self.id,
            kind: Kind::Worker,
            policy: self.policy,
            labels: self.labels,
            gauge,
            factory: Arc::new(factory),
        };
        (spec, Address::new(endpoint))
    }
}

impl<W: Worker> fmt::Debug for WorkerSpec<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerSpec").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<W: Worker> ChildFactory for WorkerFactory<W> {
    fn next_incarnation(&self) -> u64 {
        self.endpoint.slot.next_incarnation()
    }

    fn spawn(
        &self,
        guard: Arc<IncarnationGuard>,
        supervisor: Option<ActorCell>,
    ) -> BoxFuture<'static, Result<(), SpawnErr>> {
        Box::pin(WorkerActor::new(self, guard).spawn(supervisor))
    }

    fn stop(&self, incarnation: &Incarnation) {
        incarnation.stopping.cancel();
        if let Some(cell) = incarnation.cell.get() {
            cell.stop(None);
        }
    }

    fn endpoint(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.endpoint) as Arc<dyn Any + Send + Sync>
    }
}
