//! What a child is: how it is started, and how it is treated.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{SessionId, TenantId};
use futures_util::future::BoxFuture;
use ractor::{ActorCell, SpawnErr};

use super::address::{Address, Port};
use super::backoff::Backoff;
use super::context::Context;
use super::exit::Failure;
use super::id::ChildId;
use super::life::{Life, Presence};
use super::machine::Policy;
use super::node::{Gauge, Labels};
use super::policy::{Kind, Restart, Shutdown};
use super::shell::{Shell, WorkerHatch};
use super::slot::Slot;
use super::worker::Worker;

/// The spec of one child, of whatever kind; made by [`WorkerSpec::build`] and [`super::SupervisorSpec::build`].
///
/// It belongs to one place: it is used up where it is given to a supervisor, and serves all its incarnations there.
pub struct ChildSpec {
    pub(crate) id: ChildId,
    pub(crate) kind: Kind,
    pub(crate) policy: Policy,
    pub(crate) labels: Labels,
    pub(crate) gauge: Gauge,
    pub(crate) hatch: Arc<dyn Hatch>,
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
pub(crate) trait Hatch: Send + Sync {
    /// The number of the incarnation that is about to come.
    fn next_incarnation(&self) -> u64;
    /// Starts an actor for `presence`, linked to `supervisor`. Runs none of the child's own code.
    fn spawn(
        &self,
        presence: Arc<Presence>,
        supervisor: Option<ActorCell>,
    ) -> BoxFuture<'static, Result<(), SpawnErr>>;
    /// Asks an incarnation to stop.
    fn stop(&self, life: &Life);
    /// The port, whose type only the owner of an address knows.
    fn port(&self) -> Arc<dyn Any + Send + Sync>;
}

/// The start of a worker.
pub(crate) type Start<W> =
    dyn Fn(Context<<W as Worker>::Message>) -> BoxFuture<'static, Result<W, Failure>> + Send + Sync;

/// What a worker is and how it is treated. Built into a [`ChildSpec`].
pub struct WorkerSpec<W: Worker> {
    id: ChildId,
    start: Arc<Start<W>>,
    policy: Policy,
    labels: Labels,
    start_within: Duration,
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
        let policy = Policy {
            restart: Restart::Permanent,
            shutdown: Shutdown::default(),
            backoff: Backoff::default(),
        };
        Self {
            id,
            start: Arc::new(move |context| Box::pin(start(context))),
            policy,
            labels: Labels::default(),
            start_within: Duration::from_secs(30),
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
    pub fn start_within(mut self, time: Duration) -> Self {
        self.start_within = time;
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
        let gauge = Gauge::new(self.queue);
        let port = Arc::new(Port { id: self.id.clone(), slot: Arc::new(Slot::new()), gauge: gauge.clone() });
        let hatch: WorkerHatch<W> = WorkerHatch {
            port: Arc::clone(&port),
            start: self.start,
            start_within: self.start_within,
            idle_after: self.idle_after,
        };
        let spec = ChildSpec {
            id: self.id,
            kind: Kind::Worker,
            policy: self.policy,
            labels: self.labels,
            gauge,
            hatch: Arc::new(hatch),
        };
        (spec, Address::new(port))
    }
}

impl<W: Worker> fmt::Debug for WorkerSpec<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerSpec").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<W: Worker> Hatch for WorkerHatch<W> {
    fn next_incarnation(&self) -> u64 {
        self.port.slot.next_incarnation()
    }

    fn spawn(
        &self,
        presence: Arc<Presence>,
        supervisor: Option<ActorCell>,
    ) -> BoxFuture<'static, Result<(), SpawnErr>> {
        Box::pin(Shell::new(self, presence).spawn(supervisor))
    }

    fn stop(&self, life: &Life) {
        life.stopping.cancel();
        if let Some(cell) = life.cell.get() {
            cell.stop(None);
        }
    }

    fn port(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.port) as Arc<dyn Any + Send + Sync>
    }
}
