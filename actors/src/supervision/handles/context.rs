//! The context of a worker: its identity and its tracked work.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::address::{Address, WorkerEndpoint};
use super::child_scope::ChildScope;
use crate::supervision::running::idle_timer::IdleTimer;
use crate::supervision::running::incarnation::{Incarnation, IncarnationGuard};
use crate::supervision::specs::exit::panic_text;
use crate::supervision::specs::id::ChildId;

/// The context of one incarnation of a worker. Cheap to clone.
pub struct Context<M: Send + 'static> {
    inner: Arc<Inner<M>>,
}

struct Inner<M: Send + 'static> {
    address: Address<M>,
    incarnation: Arc<Incarnation>,
    /// Weak, so that a stored context does not keep the incarnation alive.
    guard: Weak<IncarnationGuard>,
    /// Cancelled when the actor has ended. This cancels the work that it started.
    shutdown: CancellationToken,
    jobs: TaskTracker,
    /// Tracks background work, which does not keep the actor from being idle.
    background: TaskTracker,
    idle_timer: Option<Arc<IdleTimer>>,
}

/// Held while tracked work runs, so that the incarnation is not gone meanwhile. When the work ends, the actor's idle
/// time starts again; for background work it does not.
struct WorkGuard {
    idle_timer: Option<Arc<IdleTimer>>,
    _guard: Arc<IncarnationGuard>,
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        if let Some(idle_timer) = &self.idle_timer {
            idle_timer.postpone();
        }
    }
}

/// The handle of tracked work. Dropping it aborts the work at its next await. Work that blocks a thread runs to its
/// end.
#[must_use = "dropping it aborts the work"]
#[derive(Debug)]
pub struct Job(AbortOnDropHandle<()>);

impl Job {
    /// Whether the work has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Detaches the work. It is aborted when the actor ends.
    pub fn detach(self) {
        drop(self.0.detach());
    }

    /// Waits until the work has ended.
    pub async fn wait(self) {
        // The task has already reported a panic of the work.
        let _ = self.0.await;
    }
}

/// Runs work of an actor, and reports its panic. The guard is dropped after the work, also when the work is aborted.
///
/// Boxed work is one type, so that Tokio's code for a task is compiled once, not for each caller.
async fn run_guarded(
    work: BoxFuture<'static, ()>,
    work_guard: Option<WorkGuard>,
    incarnation: Arc<Incarnation>,
) {
    let Some(_work_guard) = work_guard else { return };
    let work = AssertUnwindSafe(work).catch_unwind();
    if let Err(payload) = work.await {
        tracing::error!(actor = ?incarnation, panic = %panic_text(payload.as_ref()), "work of an actor panicked");
    }
}

impl<M: Send + 'static> Context<M> {
    pub(crate) fn new(
        endpoint: &Arc<WorkerEndpoint<M>>,
        guard: &Arc<IncarnationGuard>,
        shutdown: CancellationToken,
        idle_timer: Option<Arc<IdleTimer>>,
    ) -> Self {
        let inner = Inner {
            address: Address::new(Arc::clone(endpoint)),
            incarnation: Arc::clone(&guard.incarnation),
            guard: Arc::downgrade(guard),
            shutdown,
            jobs: TaskTracker::new(),
            background: TaskTracker::new(),
            idle_timer,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The worker's own address.
    #[must_use]
    pub fn address(&self) -> &Address<M> {
        &self.inner.address
    }

    /// The worker's id.
    #[must_use]
    pub fn id(&self) -> &ChildId {
        self.inner.incarnation.id()
    }

    /// The ids from the root to the worker, separated by `/`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.inner.incarnation.node.path
    }

    /// The number of the incarnation, from 1.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.inner.incarnation.number
    }

    /// A token that is cancelled when the supervisor asks the worker to stop. Slow handlers should watch it.
    #[must_use]
    pub fn stopping(&self) -> &CancellationToken {
        &self.inner.incarnation.stopping
    }

    /// Shows in the tree what the worker waits for, until the guard is dropped.
    pub fn waiting_for(&self, reason: impl Into<Cow<'static, str>>) -> WaitReasonGuard {
        self.inner.incarnation.node.state().waiting_for = Some(reason.into());
        WaitReasonGuard { incarnation: Arc::clone(&self.inner.incarnation) }
    }

    /// Runs `work` concurrently with the actor, which stays responsive. The work should report its result in a message.
    /// It is aborted when the actor ends. The actor counts as gone only when the work has ended.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Job {
        self.track(&self.inner.jobs, self.work_guard(), Box::pin(work))
    }

    /// Like [`Context::spawn`], for work that runs as long as the actor does. It does not keep the actor from being
    /// idle.
    pub fn spawn_background(&self, work: impl Future<Output = ()> + Send + 'static) -> Job {
        self.track(&self.inner.background, self.background_guard(), Box::pin(work))
    }

    fn track(
        &self,
        tracker: &TaskTracker,
        work_guard: Option<WorkGuard>,
        work: BoxFuture<'static, ()>,
    ) -> Job {
        let shutdown = self.inner.shutdown.clone();
        let work = Box::pin(async move {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = work => {}
            }
        });
        let task = run_guarded(work, work_guard, Arc::clone(&self.inner.incarnation));
        Job(AbortOnDropHandle::new(tracker.spawn(task)))
    }

    /// Runs `work` concurrently with the actor, and always to its end: it is never aborted.
    ///
    /// - The work gets a token that is cancelled when the actor has ended.
    /// - Until the work ends, the actor is neither gone nor restarted. So a resource such as a sandbox is removed
    ///   before the next incarnation creates another.
    /// - The work must limit its own time. Otherwise only the end of the Tokio runtime ends it.
    pub fn spawn_joined<F, Fut>(&self, work: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.run_joined(&self.inner.jobs, self.work_guard(), work);
    }

    /// Like [`Context::spawn_joined`], for work that runs as long as the actor does. It does not keep the actor from
    /// being idle.
    pub fn spawn_joined_background<F, Fut>(&self, work: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.run_joined(&self.inner.background, self.background_guard(), work);
    }

    fn run_joined<F, Fut>(&self, tracker: &TaskTracker, work_guard: Option<WorkGuard>, work: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let shutdown = self.inner.shutdown.clone();
        // `work` is called inside the future, because a panic of the call must be caught too.
        let work = Box::pin(async move { work(shutdown).await });
        drop(tracker.spawn(run_guarded(work, work_guard, Arc::clone(&self.inner.incarnation))));
    }

    /// Runs blocking `work` on a thread. Nothing can abort it. Until it ends, the actor is neither gone nor restarted.
    pub fn spawn_blocking(&self, work: impl FnOnce() + Send + 'static) -> Job {
        let incarnation = Arc::clone(&self.inner.incarnation);
        let work_guard = self.work_guard();
        let task = move || {
            let Some(_work_guard) = work_guard else { return };
            if let Err(payload) = std::panic::catch_unwind(AssertUnwindSafe(work)) {
                tracing::error!(actor = ?incarnation, panic = %panic_text(payload.as_ref()), "work of an actor panicked");
            }
        };
        Job(AbortOnDropHandle::new(self.inner.jobs.spawn_blocking(task)))
    }

    /// The scope for actors below this one.
    #[must_use]
    pub fn child_scope(&self) -> ChildScope {
        let Inner { incarnation, guard, shutdown, background, .. } = &*self.inner;
        ChildScope {
            incarnation: Arc::clone(incarnation),
            guard: Weak::clone(guard),
            shutdown: shutdown.clone(),
            background: background.clone(),
        }
    }

    /// The guard of work that starts; `None` if the actor has ended.
    fn work_guard(&self) -> Option<WorkGuard> {
        let guard = self.inner.guard.upgrade()?;
        Some(WorkGuard { idle_timer: self.inner.idle_timer.clone(), _guard: guard })
    }

    /// The guard of background work, which does not keep the actor busy; `None` if the actor has ended.
    fn background_guard(&self) -> Option<WorkGuard> {
        let guard = self.inner.guard.upgrade()?;
        Some(WorkGuard { idle_timer: None, _guard: guard })
    }

    pub(crate) fn idle_timer(&self) -> Option<&IdleTimer> {
        self.inner.idle_timer.as_deref()
    }

    pub(crate) fn has_jobs(&self) -> bool {
        !self.inner.jobs.is_empty()
    }
}

impl<M: Send + 'static> Clone for Context<M> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<M: Send + 'static> fmt::Debug for Context<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({:?})", self.inner.incarnation)
    }
}

/// Shows in the tree what an actor waits for, until it is dropped.
#[must_use = "dropping it clears the wait reason"]
#[derive(Debug)]
pub struct WaitReasonGuard {
    incarnation: Arc<Incarnation>,
}

impl Drop for WaitReasonGuard {
    fn drop(&mut self) {
        self.incarnation.node.state().waiting_for = None;
    }
}
