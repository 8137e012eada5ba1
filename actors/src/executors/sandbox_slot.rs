//! The place of a session's one sandbox, over all its incarnations: what calls read, and its actor fills and clears.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(target_os = "linux")]
use conjure_sandbox::{ContentDir, ContentItem};
use conjure_sandbox::{Executor, SandboxError, SandboxErrorKind};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::live_sandbox::{LiveSandbox, UseGuard};
use super::notice::ModelNotice;
use super::usage::SandboxUsage;
use crate::metrics::SandboxMetrics;

/// What the tools' side and the actor's share.
pub(crate) struct SandboxSlot {
    sandbox: watch::Sender<Option<Arc<LiveSandbox>>>,
    pub(crate) lifecycle: Arc<SandboxLifecycle>,
    /// What sandboxes are counted with, where they are.
    pub(crate) metrics: Option<SandboxMetrics>,
    state: Mutex<SlotState>,
}

/// Who may have a sandbox at a berth, and until when anybody may. Also whoever waits for the end of the last one has it.
#[derive(Debug, Default)]
pub(crate) struct SandboxLifecycle {
    /// Held from before a sandbox is made until nothing of it changes its workspace any more.
    pub(crate) exclusive: tokio::sync::Mutex<()>,
    /// Nobody wants a sandbox any more.
    pub(crate) closed: CancellationToken,
    /// What removes the rest of those that were here.
    cleanups: TaskTracker,
}

impl SandboxLifecycle {
    /// Returns when nothing of a sandbox is left. No other is made afterwards.
    pub(crate) async fn close(&self) {
        self.closed.cancel();
        drop(self.exclusive.lock().await);
        self.wait_cleanups().await;
    }

    /// Removes what is left of a sandbox, behind the one that takes its place.
    pub(crate) fn cleanup_later(&self, removal: impl Future<Output = ()> + Send + 'static) {
        self.cleanups.spawn(removal);
    }

    /// Whether something is left of one that was here.
    pub(crate) fn has_cleanups(&self) -> bool {
        !self.cleanups.is_empty()
    }

    /// Returns when nothing is left of those that were here.
    pub(crate) async fn wait_cleanups(&self) {
        self.cleanups.close();
        self.cleanups.wait().await;
    }
}

#[derive(Default)]
struct SlotState {
    /// What the model has not been told yet.
    notice: Option<ModelNotice>,
    /// What was put on the shelves, to be put on those of the next one, too.
    #[cfg(target_os = "linux")]
    items: Vec<InstalledItem>,
    #[cfg(target_os = "linux")]
    next: u64,
}

/// Something that is to be on the shelves of every sandbox.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone)]
pub(crate) struct InstalledItem {
    /// Tells it from whatever has its name before or after.
    pub(crate) number: u64,
    pub(crate) item: ContentItem,
}

#[cfg(target_os = "linux")]
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sandbox, to be used, when there is one that has not ended. It may be paused.
    pub(super) fn acquire(&self) -> Option<UseGuard> {
        UseGuard::acquire(self.current()?)
    }

    /// The sandbox, when there is one that has not ended.
    pub(crate) fn current(&self) -> Option<Arc<LiveSandbox>> {
        self.sandbox.borrow().as_ref().filter(|sandbox| sandbox.is_live()).cloned()
    }

    /// Resolves when there is a sandbox. The one that is there and has ended already is none.
    pub(crate) async fn wait_ready(&self) {
        let mut sandboxes = self.sandbox.subscribe();
        let is_live = |sandbox: &Option<Arc<LiveSandbox>>| sandbox.as_ref().is_some_and(|one| one.is_live());
        // The sender is here.
        let _ = sandboxes.wait_for(is_live).await;
    }

    /// Has calls served by this sandbox.
    pub(crate) fn set(&self, executor: Arc<dyn Executor>, usage: SandboxUsage) -> Arc<LiveSandbox> {
        let sandbox = Arc::new(LiveSandbox::new(executor, usage));
        self.sandbox.send_replace(Some(Arc::clone(&sandbox)));
        sandbox
    }

    /// Has it serve no more calls, and ends those that are under way.
    pub(crate) fn clear(&self, sandbox: &Arc<LiveSandbox>, reason: SandboxError) {
        let notice = ModelNotice::lost(&reason, sandbox.executor.isolation());
        self.remove(sandbox, reason, notice);
    }

    /// The same for one that nobody uses and that is put away.
    pub(super) fn clear_idle(&self, sandbox: &Arc<LiveSandbox>) {
        let reason = SandboxError::new(SandboxErrorKind::Lost, "the sandbox was put away, as nobody used it");
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

    /// What the model has not been told, when there is a sandbox of which it is true.
    pub(crate) fn take_notice(&self) -> Option<ModelNotice> {
        self.current()?;
        self.state().notice.take()
    }

    /// What is to be on the shelves.
    #[cfg(target_os = "linux")]
    pub(crate) fn items(&self) -> Vec<InstalledItem> {
        self.state().items.clone()
    }

    /// Forgets what has this name: no other sandbox gets it.
    #[cfg(target_os = "linux")]
    pub(crate) fn remove_item(&self, dir: ContentDir, name: &str) {
        self.state().items.retain(|known_state| !known_state.is_called(dir, name));
    }

    /// Remembers what was put on the shelves of this sandbox, which may be gone since: then the next one gets it. Says
    /// no when there is a next one already, which may not have got it.
    #[cfg(target_os = "linux")]
    pub(crate) fn add_item(&self, item: &ContentItem, sandbox: &Arc<LiveSandbox>) -> bool {
        // What comes to be there is read under the same lock ([`SandboxSlot::occupy_with`]).
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

    /// As [`SandboxSlot::occupy`], unless something else is to be on the shelves by now than these.
    #[cfg(target_os = "linux")]
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
        f.debug_struct("Berth").field("sandbox", &executor).finish_non_exhaustive()
    }
}
