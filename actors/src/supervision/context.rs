//! What a worker knows of itself, and what it can have done while it stays responsive.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use conjure_base::{SessionId, TenantId};
use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::address::{Address, WorkerEndpoint};
use super::child_scope::ChildScope;
use super::exit::panic_text;
use super::id::ChildId;
use super::incarnation::{Incarnation, IncarnationGuard};
use super::timer::IdleTimer;

/// One incarnation of a worker, as it sees itself. Cheap to clone.
pub struct Context<M: Send + 'static> {
    inner: Arc<Inner<M>>,
}

struct Inner<M: Send + 'static> {
    address: Address<M>,
    incarnation: Arc<Incarnation>,
    /// Weak: a context that somebody keeps must not keep the incarnation.
    guard: Weak<IncarnationGuard>,
    /// The actor is over, and so is the work that it started.
    shutdown: CancellationToken,
    jobs: TaskTracker,
    /// What goes on for as long as the actor does.
    background: TaskTracker,
    idle_timer: Option<Arc<IdleTimer>>,
}

/// Work beside an actor is under way: while it is, the actor is there, and it is not idle.
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

/// Work that an actor started and follows. Dropping it aborts the work at its next await; work that blocks a thread
/// goes on to its end.
#[must_use = "dropping it aborts the work"]
#[derive(Debug)]
pub struct Job(AbortOnDropHandle<()>);

impl Job {
    /// Whether the work is over.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Leaves the work to the actor, with which it is aborted.
    pub fn detach(self) {
        drop(self.0.detach());
    }

    /// Waits until the work is over.
    pub async fn wait(self) {
        // What went wrong in it was said where it went wrong.
        let _ = self.0.await;
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

    /// Its own address.
    #[must_use]
    pub fn address(&self) -> &Address<M> {
        &self.inner.address
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &ChildId {
        self.inner.incarnation.id()
    }

    /// The ids from the root to it, with `/` between them.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.inner.incarnation.node.path
    }

    /// Which incarnation it is, from 1.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.inner.incarnation.number
    }

    /// Whose it is.
    #[must_use]
    pub fn tenant(&self) -> Option<&TenantId> {
        self.inner.incarnation.node.labels.tenant.as_ref()
    }

    /// Which conversation it belongs to.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.inner.incarnation.node.labels.session
    }

    /// Cancelled when its supervisor wants it to stop. A handler that takes long watches it.
    #[must_use]
    pub fn stopping(&self) -> &CancellationToken {
        &self.inner.incarnation.stopping
    }

    /// Says in the tree what it waits for, until the guard is dropped.
    pub fn waiting_for(&self, what: impl Into<Cow<'static, str>>) -> WaitReasonGuard {
        self.inner.incarnation.node.state().waiting_for = Some(what.into());
        WaitReasonGuard { incarnation: Arc::clone(&self.inner.incarnation) }
    }

    /// Runs `work` beside the actor, which stays responsive; it tells by a message what came of it. It is aborted when
    /// the actor ends, and the actor counts as gone only when it is over.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Job {
        self.track(&self.inner.jobs, self.work_guard(), work)
    }

    /// As [`Context::spawn`], for what goes on for as long as the actor does: it does not keep the actor from being idle.
    pub fn spawn_background(&self, work: impl Future<Output = ()> + Send + 'static) -> Job {
        self.track(&self.inner.background, self.background(), work)
    }

    fn track(
        &self,
        tracker: &TaskTracker,
        work_guard: Option<WorkGuard>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Job {
        let (incarnation, shutdown) = (Arc::clone(&self.inner.incarnation), self.inner.shutdown.clone());
        let task = async move {
            // Dropped after the work, whatever ends it.
            let Some(_work_guard) = work_guard else { return };
            let work = AssertUnwindSafe(work).catch_unwind();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                outcome = work => {
                    if let Err(payload) = outcome {
                        tracing::error!(actor = ?incarnation, panic = %panic_text(payload.as_ref()), "work of an actor panicked");
                    }
                }
            }
        };
        Job(AbortOnDropHandle::new(tracker.spawn(task)))
    }

    /// Runs `work` beside the actor to its end, whatever ends the actor: it is given a token that is cancelled when the
    /// actor is over, and is not aborted then. Until it is over, the actor is not gone and not started again, so what must be
    /// put away in order, such as a sandbox, is away before another takes its place. It bounds itself: nothing else does, but
    /// the end of the Tokio runtime.
    pub fn spawn_joined<F, Fut>(&self, work: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.run_joined(&self.inner.jobs, self.work_guard(), work);
    }

    /// As [`Context::spawn_joined`], for what stands beside the actor all the time: it does not keep the actor from being
    /// idle.
    pub fn spawn_joined_background<F, Fut>(&self, work: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.run_joined(&self.inner.background, self.background(), work);
    }

    fn run_joined<F, Fut>(&self, tracker: &TaskTracker, work_guard: Option<WorkGuard>, work: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let (incarnation, shutdown) = (Arc::clone(&self.inner.incarnation), self.inner.shutdown.clone());
        let task = async move {
            // Dropped after the work, whatever ends it.
            let Some(_work_guard) = work_guard else { return };
            // Its making, too, is the actor's code. Boxed: a future keeps what it was made of beside what it became.
            let work = AssertUnwindSafe(async move { Box::pin(work(shutdown)).await }).catch_unwind();
            if let Err(payload) = work.await {
                tracing::error!(actor = ?incarnation, panic = %panic_text(payload.as_ref()), "work of an actor panicked");
            }
        };
        drop(tracker.spawn(task));
    }

    /// Runs `work`, which blocks, on a thread beside the actor. Nothing can abort it: until it is over, the actor is not
    /// gone and not started again.
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

    /// Where others can stand below the actor.
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

    /// Stands for work that begins; nothing when the actor is over.
    fn work_guard(&self) -> Option<WorkGuard> {
        let guard = self.inner.guard.upgrade()?;
        Some(WorkGuard { idle_timer: self.inner.idle_timer.clone(), _guard: guard })
    }

    /// The same for what does not keep the actor busy.
    fn background(&self) -> Option<WorkGuard> {
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

/// An actor says what it waits for.
#[must_use = "the tree says it until this is dropped"]
#[derive(Debug)]
pub struct WaitReasonGuard {
    incarnation: Arc<Incarnation>,
}

impl Drop for WaitReasonGuard {
    fn drop(&mut self) {
        self.incarnation.node.state().waiting_for = None;
    }
}
