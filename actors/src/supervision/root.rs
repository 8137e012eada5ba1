//! The handle of a tree's root.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock, TimedOut, with_deadline};
use tokio::sync::oneshot;

use super::tree::ActorTree;
use crate::supervision::handles::error::{RequestError, ShutdownError, StartError};
use crate::supervision::handles::monitor::Monitor;
use crate::supervision::running::incarnation::{Incarnation, IncarnationGuard, Parent};
use crate::supervision::running::node::{Node, Status};
use crate::supervision::specs::exit::{Exit, StartFailure};
use crate::supervision::specs::spec::{ChildFactory, ChildSpec};

/// How long [`Root::shutdown`] waits for a killed tree. Actors that do not block a thread end much sooner.
const GRACE: Duration = Duration::from_secs(1);

/// A running tree: the incarnation of its root, which no supervisor restarts.
///
/// Dropping it stops the tree in order, in the background. If the Tokio runtime shuts down first, it kills the
/// remaining actors. Use [`Root::shutdown`] to wait for the end.
#[must_use = "dropping the root stops its tree"]
pub struct Root {
    incarnation: Arc<Incarnation>,
    factory: Arc<dyn ChildFactory>,
}

impl Root {
    /// Starts a tree. Returns when all initial children have started. [`super::SupervisorSpec::build`] returns the
    /// handle of the root supervisor.
    ///
    /// # Errors
    /// - [`StartError::Failed`] if a child did not start. The children before it have been stopped in reverse order.
    /// - [`RequestError::DeadlinePassed`] if the start took too long. The started actors stop in the background.
    pub async fn spawn(spec: ChildSpec, deadline: Deadline) -> Result<Self, StartError> {
        let node = Arc::new(Node::new(spec.id.clone(), spec.kind, &spec.labels, spec.gauge.clone(), None));
        let (root, started) = Self::start(&spec, node).await?;
        let mut down = root.monitor();
        tokio::select! {
            biased;
            Ok(()) = started => Ok(root),
            down = &mut down => Err(StartError::Failed(down.exit)),
            () = SystemClock.sleep_until(deadline) => {
                Err(RequestError::DeadlinePassed(root.incarnation.id().clone()).into())
            }
        }
    }

    /// Starts the root of a tree at its node. The returned receiver resolves when the start has succeeded. It fails if
    /// the tree ends before that.
    pub(crate) async fn start(
        spec: &ChildSpec,
        node: Arc<Node>,
    ) -> Result<(Self, oneshot::Receiver<()>), StartError> {
        let incarnation = Arc::new(Incarnation::new(Arc::clone(&node), spec.factory.next_incarnation()));
        {
            let mut state = node.state();
            state.status = Status::Starting;
            state.incarnation = incarnation.number;
        }
        let (ready, started) = oneshot::channel();
        let guard =
            IncarnationGuard::new(Arc::clone(&incarnation), Parent::None { ready: Mutex::new(Some(ready)) });
        // From here on, dropping this future drops `root`, which stops the tree.
        let root = Self { incarnation, factory: Arc::clone(&spec.factory) };
        root.factory.spawn(guard, None).await.map_err(|error| {
            let cause = crate::supervision::specs::exit::Cause::new(error.to_string().into());
            StartError::Failed(Exit::StartFailed(StartFailure::Failed(cause)))
        })?;
        Ok((root, started))
    }

    /// Stops the tree in order, without waiting.
    pub(crate) fn stop(&self) {
        self.factory.stop(&self.incarnation);
    }

    /// Kills the tree, without waiting.
    pub(crate) fn kill(&self) {
        self.incarnation.kill();
    }

    /// A snapshot of all actors. It asks no actor, so it works even if all of them hang.
    #[must_use]
    pub fn tree(&self) -> ActorTree {
        ActorTree::of(&self.incarnation.node)
    }

    /// Monitors the root. The root also ends by itself, when it gives up.
    pub fn monitor(&self) -> Monitor {
        Monitor::of(&self.incarnation)
    }

    /// Stops the tree in order, and returns when nothing of it is left. It may be called several times, also
    /// concurrently. All calls wait for the same end, and the earliest deadline applies.
    ///
    /// # Errors
    /// If the deadline passed first. The remaining actors were killed, which ends each of them at its next await.
    /// - [`ShutdownError::Killed`] if they ended within a second after that.
    /// - [`ShutdownError::Stuck`] if some did not: they block a thread. The error names them.
    pub async fn shutdown(&self, deadline: Deadline) -> Result<(), ShutdownError> {
        self.stop();
        let mut down = self.monitor();
        if with_deadline(&SystemClock, deadline, &mut down).await.is_ok() {
            return Ok(());
        }
        let still = Box::new(self.tree());
        tracing::warn!(%still, "the tree did not stop before the deadline and is killed");
        self.kill();
        Err(match with_deadline(&SystemClock, SystemClock.deadline(GRACE), down).await {
            Ok(_) => ShutdownError::Killed { still },
            Err(TimedOut) => ShutdownError::Stuck { still: Box::new(self.tree()), grace: GRACE },
        })
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Root({:?})", self.incarnation)
    }
}
