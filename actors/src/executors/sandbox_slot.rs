//! The slot of a session's sandbox, over all replacements. Calls read it; the sandbox's actor fills and clears it.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};

use conjure_base::lock;

use conjure_sandbox::{ContentDir, ContentItem, Executor, SandboxError, SandboxErrorKind};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::idle_tracking::SandboxUsage;
use super::live_sandbox::{LiveSandbox, UseGuard};
use super::notice::ModelNotice;
use crate::metrics::SandboxMetrics;

/// The state that the tools' executor and the actor share.
pub(crate) struct SandboxSlot {
    sandbox: watch::Sender<Option<Arc<LiveSandbox>>>,
    pub(crate) lifecycle: Arc<SandboxLifecycle>,
    /// The metrics of sandboxes, if they are counted.
    pub(crate) metrics: Option<SandboxMetrics>,
    state: Mutex<SlotState>,
}

/// Allows one sandbox at a time in a slot, until the slot is closed. Code that waits for the end of the last sandbox shares it.
#[derive(Debug, Default)]
pub(crate) struct SandboxLifecycle {
    /// Held from before a sandbox is created until nothing of it changes its workspace any more.
    pub(crate) exclusive: tokio::sync::Mutex<()>,
    /// Cancelled when no more sandboxes may be created.
    pub(crate) closed: CancellationToken,
    /// Tasks that remove the leftovers of former sandboxes.
    cleanups: TaskTracker,
    /// The lifecycles of the session's other sandboxes, which are closed with this one.
    others: Mutex<Vec<Arc<SandboxLifecycle>>>,
}

impl SandboxLifecycle {
    /// Closes this slot and the slots of the session's other sandboxes. Returns when nothing of these sandboxes is left. No sandbox
    /// is created afterwards.
    pub(crate) async fn close(&self) {
        self.closed.cancel();
        let others = lock(&self.others).clone();
        for other in &others {
            other.closed.cancel();
        }
        for one in std::iter::once(self).chain(others.iter().map(|other| &**other)) {
            drop(one.exclusive.lock().await);
            one.wait_cleanups().await;
        }
    }

    /// Creates the lifecycle of another sandbox of the same session.
    pub(crate) fn new_sibling(&self) -> Arc<Self> {
        let sibling = Arc::new(Self { closed: self.closed.child_token(), ..Self::default() });
        lock(&self.others).push(Arc::clone(&sibling));
        sibling
    }

    /// Removes leftovers of a sandbox in the background, while the next one runs.
    pub(crate) fn cleanup_later(&self, removal: impl Future<Output = ()> + Send + 'static) {
        self.cleanups.spawn(removal);
    }

    /// Whether leftovers of a former sandbox are being removed.
    pub(crate) fn has_cleanups(&self) -> bool {
        !self.cleanups.is_empty()
    }

    /// Returns when all leftovers of former sandboxes are removed.
    pub(crate) async fn wait_cleanups(&self) {
        self.cleanups.close();
        self.cleanups.wait().await;
    }
}

#[derive(Default)]
struct SlotState {
    /// The notice that the model has not received yet.
    notice: Option<ModelNotice>,
    /// Installed content, which the next sandbox gets as well.
    items: Vec<InstalledItem>,
    next: u64,
}

/// Content that every sandbox of the slot gets.
#[derive(Debug, Clone)]
pub(crate) struct InstalledItem {
    /// Distinguishes it from other content with the same name.
    pub(crate) number: u64,
    pub(crate) item: ContentItem,
}

impl InstalledItem {
    fn is_called(&self, dir: ContentDir, name: &str) -> bool {
        self.item.dir == dir && self.item.name == name
    }
}

impl SandboxSlot {
    pub(crate) fn new(
        notice: Option<ModelNotice>,
        lifecycle: Arc<SandboxLifecycle>,
        metrics: Option<SandboxMetrics>,
    ) -> Self {
        Self {
            sandbox: watch::Sender::new(None),
            lifecycle,
            metrics,
            state: Mutex::new(SlotState { notice, ..SlotState::default() }),
        }
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        lock(&self.state)
    }

    /// Marks the current sandbox as in use, if there is one that has not ended. It may be paused.
    pub(super) fn acquire(&self) -> Option<UseGuard> {
        UseGuard::acquire(self.current()?)
    }

    /// The current sandbox, if there is one that has not ended.
    pub(crate) fn current(&self) -> Option<Arc<LiveSandbox>> {
        self.sandbox.borrow().as_ref().filter(|sandbox| sandbox.is_live()).cloned()
    }

    /// Resolves when there is a sandbox that has not ended.
    pub(crate) async fn wait_ready(&self) {
        let mut sandboxes = self.sandbox.subscribe();
        let is_live = |sandbox: &Option<Arc<LiveSandbox>>| sandbox.as_ref().is_some_and(|one| one.is_live());
        // `self` holds the sender, so waiting cannot fail.
        let _ = sandboxes.wait_for(is_live).await;
    }

    /// Sets the sandbox that serves calls.
    pub(crate) fn set(&self, executor: Arc<dyn Executor>, usage: SandboxUsage) -> Arc<LiveSandbox> {
        let sandbox = Arc::new(LiveSandbox::new(executor, usage));
        self.sandbox.send_replace(Some(Arc::clone(&sandbox)));
        sandbox
    }

    /// Removes the sandbox from the slot and ends its running calls.
    pub(crate) fn clear(&self, sandbox: &Arc<LiveSandbox>, reason: SandboxError) {
        let notice = ModelNotice::lost(&reason, sandbox.executor.isolation());
        self.remove(sandbox, reason, notice);
    }

    /// Removes an idle sandbox that is being stopped.
    pub(super) fn clear_idle(&self, sandbox: &Arc<LiveSandbox>) {
        let reason = SandboxError::new(SandboxErrorKind::Lost, "the sandbox was stopped because it was idle");
        self.remove(sandbox, reason, ModelNotice::stopped_idle(sandbox.executor.isolation()));
    }

    fn remove(&self, sandbox: &Arc<LiveSandbox>, reason: SandboxError, notice: ModelNotice) {
        if sandbox.is_used() {
            self.state().notice = Some(notice);
        }
        self.sandbox.send_if_modified(|current| {
            let is_it = current.as_ref().is_some_and(|current| Arc::ptr_eq(current, sandbox));
            if is_it {
                *current = None;
            }
            is_it
        });
        sandbox.end(reason);
    }

    /// Takes the notice for the model. Returns `None` while there is no new sandbox for it to describe.
    pub(crate) fn take_notice(&self) -> Option<ModelNotice> {
        self.current()?;
        self.state().notice.take()
    }

    /// The content that each sandbox must get.
    pub(crate) fn items(&self) -> Vec<InstalledItem> {
        self.state().items.clone()
    }

    /// Removes the content of this name from the list, so that later sandboxes do not get it.
    pub(crate) fn remove_item(&self, dir: ContentDir, name: &str) {
        self.state().items.retain(|known_state| !known_state.is_called(dir, name));
    }

    /// Remembers content that was installed in this sandbox, so that the next one gets it as well. Returns false if the next
    /// sandbox already exists, and so may lack the content.
    pub(crate) fn add_item(&self, item: &ContentItem, sandbox: &Arc<LiveSandbox>) -> bool {
        // [`SandboxSlot::set_if_unchanged`] reads the items under the same lock.
        let mut state = self.state();
        let is_current = match &*self.sandbox.borrow() {
            None => true,
            Some(current) => Arc::ptr_eq(current, sandbox),
        };
        if is_current && !state.items.iter().any(|known_state| known_state.is_called(item.dir, &item.name)) {
            let number = state.next;
            state.next += 1;
            state.items.push(InstalledItem { number, item: item.clone() });
        }
        is_current
    }

    /// Sets the sandbox as [`SandboxSlot::set`] does, unless the content to install differs from `given`.
    pub(crate) fn set_if_unchanged(
        &self,
        executor: &Arc<dyn Executor>,
        given: &[InstalledItem],
        usage: impl FnOnce() -> SandboxUsage,
    ) -> Option<Arc<LiveSandbox>> {
        let state = self.state();
        let numbers = |some: &[InstalledItem]| some.iter().map(|one| one.number).collect::<Vec<_>>();
        (numbers(&state.items) == numbers(given)).then(|| self.set(Arc::clone(executor), usage()))
    }
}

impl fmt::Debug for SandboxSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sandbox = self.sandbox.borrow();
        let executor = sandbox.as_ref().map(|sandbox| &sandbox.executor);
        f.debug_struct("SandboxSlot").field("sandbox", &executor).finish_non_exhaustive()
    }
}
