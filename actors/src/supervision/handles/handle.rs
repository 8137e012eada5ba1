//! The handle of a supervisor, which stays valid over its restarts.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use conjure_base::{Deadline, SystemClock, with_deadline};
use tokio::sync::oneshot;

use super::child::Child;
use super::error::{RequestError, StartError};
use super::monitor::Monitor;
use crate::supervision::running::actor_slot::ActorSlot;
use crate::supervision::running::node::{MailboxGauge, Node, Status};
use crate::supervision::running::supervisor_message::{Request, SupervisorMessage};
use crate::supervision::specs::id::ChildId;
use crate::supervision::specs::spec::ChildSpec;
use crate::supervision::tree::{ActorInfo, ActorTree, ChildCounts};

/// The slot of a supervisor, over all its incarnations.
pub(crate) struct SupervisorEndpoint {
    pub(crate) id: ChildId,
    pub(crate) slot: Arc<ActorSlot<SupervisorMessage>>,
    pub(crate) gauge: MailboxGauge,
}

/// A handle of a supervisor. It stays valid over restarts. Cheap to clone. Dropping it has no effect.
#[derive(Clone)]
pub struct Supervisor {
    endpoint: Arc<SupervisorEndpoint>,
}

impl Supervisor {
    pub(crate) const fn new(endpoint: Arc<SupervisorEndpoint>) -> Self {
        Self { endpoint }
    }

    /// The supervisor's id.
    #[must_use]
    pub fn id(&self) -> &ChildId {
        &self.endpoint.id
    }

    /// Starts a child, and returns when its start has ended. If an earlier child with this id is about to be removed,
    /// the new child starts once the earlier one is gone.
    ///
    /// If the caller stops waiting, the start continues, and its result is dropped.
    ///
    /// # Errors
    /// Why the child was not started, for example because one with this id exists.
    pub async fn start_child(&self, spec: ChildSpec, deadline: Deadline) -> Result<Child, StartError> {
        let spec = Arc::new(spec);
        self.request(deadline, |reply| Request::Start { spec, reply }).await?
    }

    /// Restarts a finished or quarantined child, and resets its failure counts. Returns when its start has ended.
    ///
    /// # Errors
    /// Why the child was not restarted. If its start fails, it stays finished or quarantined.
    pub async fn restart_child(&self, id: &ChildId, deadline: Deadline) -> Result<Child, StartError> {
        let id = id.clone();
        self.request(deadline, |reply| Request::Restart { id, reply }).await?
    }

    /// Stops and removes a child. Returns when nothing of it and below it is left. This cancels a pending restart and
    /// ends a quarantine.
    ///
    /// # Errors
    /// If there is no such child, or the supervisor did not answer.
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
        let Ok(permit) = Arc::clone(&self.endpoint.gauge.permits).try_acquire_owned() else {
            return Err(RequestError::Overloaded(id()));
        };
        let supervisor = self.endpoint.slot.running().ok_or_else(|| RequestError::NotRunning(id()))?;
        let (reply, answer) = oneshot::channel();
        let request = SupervisorMessage::Request { request: request(reply), permit };
        supervisor.send_message(request).map_err(|_| RequestError::NotRunning(id()))?;
        let answer = with_deadline(&SystemClock, deadline, answer).await;
        answer.map_err(|_| RequestError::DeadlinePassed(id()))?.map_err(|_| RequestError::ShuttingDown(id()))
    }

    /// Whether an incarnation accepts requests.
    pub(crate) fn is_running(&self) -> bool {
        self.endpoint.slot.running().is_some()
    }

    /// The children, in order; empty while the supervisor does not run. Asks no actor.
    #[must_use]
    pub fn children(&self) -> Vec<ActorInfo> {
        let children = self.node().map(|node| node.children()).unwrap_or_default();
        children.iter().map(|child| ActorInfo::of(child)).collect()
    }

    /// The number of children, by status. Asks no actor.
    #[must_use]
    pub fn count(&self) -> ChildCounts {
        ChildCounts::of(&self.children())
    }

    /// The child with this id.
    #[must_use]
    pub fn child(&self, id: &ChildId) -> Option<ActorInfo> {
        self.node()?.child(id).map(|child| ActorInfo::of(&child))
    }

    /// Waits until a child does not run any more and will not be restarted automatically. The child is then finished,
    /// quarantined, or does not exist (`None`). Asks no actor.
    ///
    /// # Errors
    /// If that did not happen before the deadline, or the supervisor has never run.
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
        with_deadline(&SystemClock, deadline, waiting)
            .await
            .map_err(|_| RequestError::DeadlinePassed(self.endpoint.id.clone()))?
    }

    /// The supervisor and all actors below it; `None` before its first start.
    #[must_use]
    pub fn tree(&self) -> Option<ActorTree> {
        self.node().map(|node| ActorTree::of(&node))
    }

    /// Monitors the last incarnation; `None` before the first.
    #[must_use]
    pub fn monitor(&self) -> Option<Monitor> {
        self.endpoint.slot.incarnation().map(|incarnation| Monitor::of(&incarnation))
    }

    /// Kills the running incarnation and everything below it, in no particular order.
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

impl Child {
    /// The child as a supervisor, if it is one.
    #[must_use]
    pub fn supervisor(&self) -> Option<Supervisor> {
        Arc::clone(&self.endpoint).downcast::<SupervisorEndpoint>().ok().map(Supervisor::new)
    }
}
