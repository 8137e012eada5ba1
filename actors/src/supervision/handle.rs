//! What callers hold: a supervisor, over all its incarnations, and a child that was started.

use std::any::Any;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use conjure_base::{Clock, Deadline, SystemClock};
use tokio::sync::oneshot;

use super::actor_slot::ActorSlot;
use super::address::{Address, WorkerEndpoint};
use super::error::{RequestError, StartError};
use super::id::ChildId;
use super::incarnation::Incarnation;
use super::monitor::Monitor;
use super::node::{MailboxGauge, Node};
use super::spec::ChildSpec;
use super::supervisor_message::{Request, SupervisorMessage};
use super::tree::{ActorInfo, ActorTree, ChildCounts, Status};

/// The place of a supervisor, over all its incarnations.
pub(crate) struct SupervisorEndpoint {
    pub(crate) id: ChildId,
    pub(crate) slot: Arc<ActorSlot<SupervisorMessage>>,
    pub(crate) gauge: MailboxGauge,
}

/// A supervisor: whichever incarnation runs. Cheap to clone; dropping it changes nothing.
#[derive(Clone)]
pub struct Supervisor {
    endpoint: Arc<SupervisorEndpoint>,
}

impl Supervisor {
    pub(crate) const fn new(endpoint: Arc<SupervisorEndpoint>) -> Self {
        Self { endpoint }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &ChildId {
        &self.endpoint.id
    }

    /// Has a child started, and returns when its start is over. Where a child of this id is about to be gone, it is
    /// waited for.
    ///
    /// A caller that stops waiting does no harm: the child starts or does not, and a supervisor keeps nothing for the
    /// caller.
    ///
    /// # Errors
    /// [`StartError`] says why there is no child, or which there is.
    pub async fn start_child(&self, spec: ChildSpec, deadline: Deadline) -> Result<Child, StartError> {
        let spec = Arc::new(spec);
        self.request(deadline, |reply| Request::Start { spec, reply }).await?
    }

    /// Has a finished or quarantined child started again, its failures forgotten. Returns when its start is over.
    ///
    /// # Errors
    /// [`StartError`] says why not. A child whose start fails is again what it was.
    pub async fn restart_child(&self, id: &ChildId, deadline: Deadline) -> Result<Child, StartError> {
        let id = id.clone();
        self.request(deadline, |reply| Request::Restart { id, reply }).await?
    }

    /// Stops a child and forgets it: returns when nothing of it and below it is left. A restart that is pending is
    /// cancelled, a quarantine is lifted.
    ///
    /// # Errors
    /// When there is no such child, or the supervisor could not be asked.
    pub async fn terminate_child(&self, id: &ChildId, deadline: Deadline) -> Result<(), RequestError> {
        let id = id.clone();
        self.request(deadline, |reply| Request::Terminate { id, reply }).await?
    }

    async fn request<T>(
        &self,
        deadline: Deadline,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, RequestError> {
        let id = || self.endpoint.id.clone();
        let Ok(permit) = Arc::clone(&self.endpoint.gauge.room).try_acquire_owned() else {
            return Err(RequestError::Overloaded(id()));
        };
        let supervisor = self.endpoint.slot.current().ok_or_else(|| RequestError::NotRunning(id()))?;
        let (reply, answer) = oneshot::channel();
        let request = SupervisorMessage::Request { request: request(reply), permit };
        supervisor.send_message(request).map_err(|_| RequestError::NotRunning(id()))?;
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|_| RequestError::ShuttingDown(id())),
            () = SystemClock.sleep_until(deadline) => Err(RequestError::DeadlinePassed(id())),
        }
    }

    /// Whether there is an incarnation that takes requests.
    pub(crate) fn is_running(&self) -> bool {
        self.endpoint.slot.current().is_some()
    }

    /// Its children, in their order; none while it does not run. Read without asking the supervisor.
    #[must_use]
    pub fn children(&self) -> Vec<ActorInfo> {
        let children = self.node().map(|node| node.children()).unwrap_or_default();
        children.iter().map(|child| ActorInfo::of(child)).collect()
    }

    /// How many children it has. Read without asking the supervisor.
    #[must_use]
    pub fn count(&self) -> ChildCounts {
        ChildCounts::of(&self.children())
    }

    /// One of its children.
    #[must_use]
    pub fn child(&self, id: &ChildId) -> Option<ActorInfo> {
        self.node()?.child(id).map(|child| ActorInfo::of(&child))
    }

    /// Waits until nothing is under way by which a child would run: it is finished or quarantined, or `None`: there is no such
    /// child. Asks nobody.
    ///
    /// # Errors
    /// When that was not so before the deadline, or the supervisor never ran.
    pub async fn wait_settled(
        &self,
        id: &ChildId,
        deadline: Deadline,
    ) -> Result<Option<ActorInfo>, RequestError> {
        let waiting = async {
            loop {
                let node = self.node().ok_or_else(|| RequestError::NotRunning(self.endpoint.id.clone()))?;
                let Some(child) = node.child(id) else { return Ok(None) };
                let mut changed = pin!(child.changes.notified());
                // From here on no change is missed.
                changed.as_mut().enable();
                let info = ActorInfo::of(&child);
                if matches!(info.status, Status::Finished | Status::Quarantined) {
                    return Ok(Some(info));
                }
                if node.child(id).is_some_and(|known| Arc::ptr_eq(&known, &child)) {
                    changed.await;
                }
            }
        };
        tokio::select! {
            biased;
            found = waiting => found,
            () = SystemClock.sleep_until(deadline) => {
                Err(RequestError::DeadlinePassed(self.endpoint.id.clone()))
            }
        }
    }

    /// It and all below it; `None` before it was first started.
    #[must_use]
    pub fn tree(&self) -> Option<ActorTree> {
        self.node().map(|node| ActorTree::of(&node))
    }

    /// Watches the last incarnation; `None` before the first.
    #[must_use]
    pub fn monitor(&self) -> Option<Monitor> {
        self.endpoint.slot.incarnation().map(|incarnation| Monitor::of(&incarnation))
    }

    /// Ends the incarnation that runs without asking: everything below it is killed too, in no order.
    pub fn kill(&self) {
        if let Some(incarnation) = self.endpoint.slot.incarnation() {
            incarnation.kill();
        }
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.endpoint.slot.incarnation().map(|incarnation| Arc::clone(&incarnation.node))
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Supervisor({})", self.endpoint.id)
    }
}

/// A child that a supervisor has: the incarnation that ran when it was handed out.
#[derive(Clone)]
pub struct Child {
    incarnation: Option<Arc<Incarnation>>,
    id: ChildId,
    endpoint: Arc<dyn Any + Send + Sync>,
}

impl Child {
    pub(crate) fn new(spec: &ChildSpec, incarnation: Option<Arc<Incarnation>>) -> Self {
        Self { incarnation, id: spec.id.clone(), endpoint: spec.factory.endpoint() }
    }

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> &ChildId {
        &self.id
    }

    /// Its address, when it is a worker that understands `M`.
    #[must_use]
    pub fn address<M: Send + 'static>(&self) -> Option<Address<M>> {
        Arc::clone(&self.endpoint).downcast::<WorkerEndpoint<M>>().ok().map(Address::new)
    }

    /// The supervisor that it is, when it is one.
    #[must_use]
    pub fn supervisor(&self) -> Option<Supervisor> {
        Arc::clone(&self.endpoint).downcast::<SupervisorEndpoint>().ok().map(Supervisor::new)
    }

    /// Watches this incarnation; `None` when the child did not run when this was handed out.
    #[must_use]
    pub fn monitor(&self) -> Option<Monitor> {
        self.incarnation.as_ref().map(Monitor::of)
    }

    /// Ends this incarnation at whatever it awaits, without asking; its supervisor takes that for abnormal.
    pub fn kill(&self) {
        if let Some(incarnation) = &self.incarnation {
            incarnation.kill();
        }
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Child({})", self.id)
    }
}
