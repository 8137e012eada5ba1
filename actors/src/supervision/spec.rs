//! What a child is: how it is started, and how it is treated.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{SessionId, TenantId};
use futures_util::future::BoxFuture;
use ractor::{ActorCell, SpawnErr};

use super::actor_slot::ActorSlot;
use super::address::{Address, WorkerEndpoint};
use super::backoff::Backoff;
use super::context::Context;
use super::exit::Failure;
use super::id::ChildId;
use super::incarnation::{Incarnation, IncarnationGuard};
use super::machine::ChildPolicy;
use super::node::{ActorLabels, MailboxGauge};
use super::policy::{Kind, Restart, Shutdown};
use super::worker::Worker;
use super::worker_actor::{WorkerActor, WorkerFactory};

/// The spec of one child, of whatever kind; made by [`WorkerSpec::build`] and [`super::SupervisorSpec::build`].
///
/// It belongs to one place: it is used up where it is given to a supervisor, and serves all its incarnations there.
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

    /// Worker or supervisor.
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

/// Makes the incarnations of one child.
pub(crate) trait ChildFactory: Send + Sync {
    /// The number of the incarnation that is about to come.
    fn next_incarnation(&self) -> u64;
    /// Starts an actor for `guard`, linked to `supervisor`. Runs none of the child's own code.
    fn spawn(
        &self,
        guard: Arc<IncarnationGuard>,
        supervisor: Option<ActorCell>,
    ) -> BoxFuture<'static, Result<(), SpawnErr>>;
    /// Asks an incarnation to stop.
    fn stop(&self, incarnation: &Incarnation);
    /// The port, whose type only the owner of an address knows.
    fn endpoint(&self) -> Arc<dyn Any + Send + Sync>;
}

/// The start of a worker.
pub(crate) type Start<W> =
    dyn Fn(Context<<W as Worker>::Message>) -> BoxFuture<'static, Result<W, Failure>> + Send + Sync;

/// What a worker is and how it is treated. Built into a [`ChildSpec`].
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
    /// A permanent worker that has 30 s to start, 5 s to stop, and room for 1,024 messages.
    ///
    /// `start` makes the worker. It runs for each incarnation, on the worker's own task, after the worker was linked to
    /// its supervisor: it may take as long as its deadline says, and is dropped at an await when the worker is to stop.
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

    /// When it is started again.
    #[must_use]
    pub fn restart(mut self, restart: Restart) -> Self {
        self.policy.restart = restart;
        self
    }

    /// How it is stopped.
    #[must_use]
    pub fn shutdown(mut self, shutdown: Shutdown) -> Self {
        self.policy.shutdown = shutdown;
        self
    }

    /// How long it waits before it is started again.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// How long its start may take.
    #[must_use]
    pub fn start_timeout(mut self, time: Duration) -> Self {
        self.start_timeout = time;
        self
    }

    /// Passivates it: when no message came and no work of it ran for this time, it stops by itself, normally. Make it
    /// transient or temporary, so that it is not started again at once; the next message finds
    /// [`super::SendError::NotRunning`], and whoever sends it starts the worker anew.
    #[must_use]
    pub fn passivate_after(mut self, time: Duration) -> Self {
        self.idle_after = Some(time);
        self
    }

    /// How many messages may wait for it; at least 1.
    #[must_use]
    pub fn queue(mut self, messages: usize) -> Self {
        self.queue = messages;
        self
    }

    /// Whose it is, where that is not its supervisor's.
    #[must_use]
    pub fn tenant(mut self, tenant: TenantId) -> Self {
        self.labels.tenant = Some(tenant);
        self
    }

    /// Which conversation it belongs to, where that is not its supervisor's.
    #[must_use]
    pub fn session(mut self, session: SessionId) -> Self {
        self.labels.session = Some(session);
        self
    }

    /// The spec, and the address of all its incarnations.
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
