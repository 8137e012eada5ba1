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

use super::address::{Address, Port};
use super::exit::panic_text;
use super::ground::Ground;
use super::id::ChildId;
use super::idleness::Idleness;
use super::life::{Life, Presence};

/// One incarnation of a worker, as it sees itself. Cheap to clone.
pub struct Context<M: Send + 'static> {
    inner: Arc<Inner<M>>,
}

struct Inner<M: Send + 'static> {
    address: Address<M>,
    life: Arc<Life>,
    /// Weak: a context that somebody keeps must not keep the incarnation.
    presence: Weak<Presence>,
    /// The actor is over, and so is the work that it started.
    over: CancellationToken,
    jobs: TaskTracker,
    /// What goes on for as long as the actor does.
    upkeep: TaskTracker,
    idleness: Option<Arc<Idleness>>,
}

/// Work beside an actor is under way: while it is, the actor is there, and it is not idle.
struct Underway {
    idleness: Option<Arc<Idleness>>,
    _presence: Arc<Presence>,
}

impl Drop for Underway {
    fn drop(&mut self) {
        if let Some(idleness) = &self.idleness {
            idleness.postpone();
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
        port: &Arc<Port<M>>,
        presence: &Arc<Presence>,
        over: CancellationToken,
        idleness: Option<Arc<Idleness>>,
    ) -> Self {
        let inner = Inner {
            address: Address::new(Arc::clone(port)),
            life: Arc::clone(&presence.life),
            presence: Arc::downgrade(presence),
            over,
            jobs: TaskTracker::new(),
            upkeep: TaskTracker::new(),
            idleness,
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
        self.inner.life.id()
    }

    /// The ids from the root to it, with `/` between them.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.inner.life.node.path
    }

    /// Which incarnation it is, from 1.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.inner.life.incarnation
    }

    /// Whose it is.
    #[must_use]
    pub fn tenant(&self) -> Option<&TenantId> {
        self.inner.life.node.labels.tenant.as_ref()
    }

    /// Which conversation it belongs to.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.inner.life.node.labels.session
    }

    /// Cancelled when its supervisor wants it to stop. A handler that takes long watches it.
    #[must_use]
    pub fn stopping(&self) -> &CancellationToken {
        &self.inner.life.stopping
    }

    /// Says in the tree what it waits for, until the guard is dropped.
    pub fn waits_for(&self, what: impl Into<Cow<'static, str>>) -> Waiting {
        self.inner.life.node.state().waits_for = Some(what.into());
        Waiting { life: Arc::clone(&self.inner.life) }
    }

    /// Runs `work` beside the actor, which stays responsive; it tells by a message what came of it. It is aborted when
    /// the actor ends, and the actor counts as gone only when it is over.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Job {
        self.track(&self.inner.jobs, self.underway(), work)
    }

    /// As [`Context::spawn`], for what goes on for as long as the actor does: it does not keep the actor from being idle.
    pub fn spawn_upkeep(&self, work: impl Future<Output = ()> + Send + 'static) -> Job {
        self.track(&self.inner.upkeep, self.upkeep(), work)
    }

    fn track(
        &self,
        tracker: &TaskTracker,
        underway: Option<Underway>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Job {
        let (life, over) = (Arc::clone(&self.inner.life), self.inner.over.clone());
        let task = async move {
            // Dropped after the work, whatever ends it.
            let Some(_underway) = underway else { return };
            let work = AssertUnwindSafe(work).catch_unwind();
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                outcome = work => {
                    if let Err(payload) = outcome {
                        tracing::error!(actor = ?life, panic = %panic_text(payload.as_ref()), "work of an actor panicked");
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
    pub fn spawn_lasting<F, Fut>(&self, work: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.last(&self.inner.jobs, self.underway(), work);
    }

    /// As [`Context::spawn_lasting`], for what stands beside the actor all the time: it does not keep the actor from being
    /// idle.
    pub fn spawn_lasting_upkeep<F, Fut>(&self, work: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.last(&self.inner.upkeep, self.upkeep(), work);
    }

    fn last<F, Fut>(&self, tracker: &TaskTracker, underway: Option<Underway>, work: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let (life, over) = (Arc::clone(&self.inner.life), self.inner.over.clone());
        let task = async move {
            // Dropped after the work, whatever ends it.
            let Some(_underway) = underway else { return };
            // Its making, too, is the actor's code. Boxed: a future keeps what it was made of beside what it became.
            let work = AssertUnwindSafe(async move { Box::pin(work(over)).await }).catch_unwind();
            if let Err(payload) = work.await {
                tracing::error!(actor = ?life, panic = %panic_text(payload.as_ref()), "work of an actor panicked");
            }
        };
        drop(tracker.spawn(task));
    }

    /// Runs `work`, which blocks, on a thread beside the actor. Nothing can abort it: until it is over, the actor is not
    /// gone and not started again.
    pub fn spawn_blocking(&self, work: impl FnOnce() + Send + 'static) -> Job {
        let life = Arc::clone(&self.inner.life);
        let underway = self.underway();
        let task = move || {
            let Some(_underway) = underway else { return };
            if let Err(payload) = std::panic::catch_unwind(AssertUnwindSafe(work)) {
                tracing::error!(actor = ?life, panic = %panic_text(payload.as_ref()), "work of an actor panicked");
            }
        };
        Job(AbortOnDropHandle::new(self.inner.jobs.spawn_blocking(task)))
    }

    /// Where others can stand below the actor.
    #[must_use]
    pub fn ground(&self) -> Ground {
        let Inner { life, presence, over, upkeep, .. } = &*self.inner;
        Ground {
            life: Arc::clone(life),
            presence: Weak::clone(presence),
            over: over.clone(),
            upkeep: upkeep.clone(),
        }
    }

    /// Stands for work that begins; nothing when the actor is over.
    fn underway(&self) -> Option<Underway> {
        let presence = self.inner.presence.upgrade()?;
        Some(Underway { idleness: self.inner.idleness.clone(), _presence: presence })
    }

    /// The same for what does not keep the actor busy.
    fn upkeep(&self) -> Option<Underway> {
        let presence = self.inner.presence.upgrade()?;
        Some(Underway { idleness: None, _presence: presence })
    }

    pub(crate) fn idleness(&self) -> Option<&Idleness> {
        self.inner.idleness.as_deref()
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
        write!(f, "Context({:?})", self.inner.life)
    }
}

/// An actor says what it waits for.
#[must_use = "the tree says it until this is dropped"]
#[derive(Debug)]
pub struct Waiting {
    life: Arc<Life>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.life.node.state().waits_for = None;
    }
}
