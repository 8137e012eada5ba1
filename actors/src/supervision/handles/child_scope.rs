//! The scope for actors below a worker. The worker starts them when it first needs them, and they end with it.
//!
//! They belong to the worker, like its joined work
//! ([`Context::spawn_joined`](crate::supervision::Context::spawn_joined)):
//! - They are stopped after the worker, in order. If the worker was killed, they are killed as well.
//! - The worker counts as gone, and is restarted, only when nothing of them is left.
//! - No supervisor restarts them.

use std::fmt;
use std::sync::{Arc, Weak};

use conjure_base::{Deadline, SystemClock, with_deadline};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::{RequestError, StartError};
use crate::supervision::root::Root;
use crate::supervision::running::incarnation::{Incarnation, IncarnationGuard};
use crate::supervision::running::node::Node;
use crate::supervision::specs::exit::Exit;
use crate::supervision::specs::spec::ChildSpec;

/// Starts actors below one incarnation of a worker. Cheap to clone.
#[derive(Clone)]
pub struct ChildScope {
    pub(crate) incarnation: Arc<Incarnation>,
    /// Weak, so that a stored scope does not keep the incarnation alive.
    pub(crate) guard: Weak<IncarnationGuard>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) background: TaskTracker,
}

impl ChildScope {
    /// Starts an actor in this scope, and returns when its start has ended. The start continues if the caller stops
    /// waiting. The caller must ensure that nothing of an earlier incarnation of this actor is left.
    ///
    /// # Errors
    /// - [`StartError::Failed`] if the actor did not start.
    /// - [`RequestError::NotRunning`] if the worker has ended.
    /// - [`RequestError::DeadlinePassed`] if the start took too long. The actor may still start.
    pub async fn start(&self, spec: Arc<ChildSpec>, deadline: Deadline) -> Result<(), StartError> {
        let is_over = || RequestError::NotRunning(self.incarnation.id().clone());
        let guard = self.guard.upgrade().ok_or_else(is_over)?;
        let id = spec.id.clone();
        let (sender, started) = oneshot::channel();
        let child_scope = self.clone();
        let running = async move {
            // The guard keeps the worker's incarnation from being gone while the child runs.
            let _guard = guard;
            let parent = &child_scope.incarnation.node;
            let node = Node::new(spec.id.clone(), spec.kind, &spec.labels, spec.gauge.clone(), Some(parent));
            let node = Arc::new(node);
            let key = parent.append_child(Arc::clone(&node));
            child_scope.run_child(&spec, node, sender).await;
            parent.remove_child(key);
        };
        drop(self.background.spawn(running));
        let started = with_deadline(&SystemClock, deadline, started).await;
        started.map_err(|_| RequestError::DeadlinePassed(id))?.unwrap_or_else(|_| Err(is_over().into()))
    }

    /// Runs the child, and returns when nothing of it is left.
    async fn run_child(
        &self,
        spec: &ChildSpec,
        node: Arc<Node>,
        sender: oneshot::Sender<Result<(), StartError>>,
    ) {
        // The caller may have stopped waiting.
        let notify = |started| drop(sender.send(started));
        let (root, started) = match Root::start(spec, node).await {
            Ok(begun) => begun,
            Err(error) => return notify(Err(error)),
        };
        let mut down = root.monitor();
        tokio::select! {
            biased;
            Ok(()) = started => notify(Ok(())),
            down = &mut down => return notify(Err(StartError::Failed(down.exit))),
            () = self.shutdown.cancelled() => {}
        }
        tokio::select! {
            biased;
            _ = &mut down => return,
            () = self.shutdown.cancelled() => {}
        }
        match self.incarnation.exit() {
            Exit::Killed => root.kill(),
            _ => root.stop(),
        }
        down.await;
    }
}

impl fmt::Debug for ChildScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChildScope({:?})", self.incarnation)
    }
}
