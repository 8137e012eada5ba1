//! The place of a session's one sandbox, over all its incarnations: what calls read, and its actor fills and clears.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use conjure_sandbox::{Executor, SandboxError, SandboxErrorKind};
#[cfg(target_os = "linux")]
use conjure_sandbox::{Provision, Shelf};
use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::notice::Notice;
use super::stay::{Stay, Visit};
use crate::metrics::SandboxMeter;

/// What the tools' side and the actor's share.
pub(crate) struct Berth {
    occupant: watch::Sender<Option<Arc<Occupant>>>,
    pub(crate) mooring: Arc<Mooring>,
    /// What sandboxes are counted with, where they are.
    pub(crate) meter: Option<SandboxMeter>,
    state: Mutex<State>,
}

/// Who may have a sandbox at a berth, and until when anybody may. Also whoever waits for the end of the last one has it.
#[derive(Debug, Default)]
pub(crate) struct Mooring {
    /// Held from before a sandbox is made until nothing of it changes its workspace any more.
    pub(crate) rope: tokio::sync::Mutex<()>,
    /// Nobody wants a sandbox any more.
    pub(crate) closed: CancellationToken,
    /// What removes the rest of those that were here.
    leaving: TaskTracker,
}

impl Mooring {
    /// Returns when nothing of a sandbox is left. No other is made afterwards.
    pub(crate) async fn close(&self) {
        self.closed.cancel();
        drop(self.rope.lock().await);
        self.left().await;
    }

    /// Removes what is left of a sandbox, behind the one that takes its place.
    pub(crate) fn leave(&self, removal: impl Future<Output = ()> + Send + 'static) {
        self.leaving.spawn(removal);
    }

    /// Whether something is left of one that was here.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Returns when nothing is left of those that were here.
    pub(crate) async fn left(&self) {
        self.leaving.close();
        self.leaving.wait().await;
    }
}

#[derive(Default)]
struct State {
    /// What the model has not been told yet.
    notice: Option<Notice>,
    /// What was put on the shelves, to be put on those of the next one, too.
    #[cfg(target_os = "linux")]
    provisions: Vec<Remembered>,
    #[cfg(target_os = "linux")]
    next: u64,
}

/// Something that is to be on the shelves of every sandbox.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone)]
pub(crate) struct Remembered {
    /// Tells it from whatever has its name before or after.
    pub(crate) number: u64,
    pub(crate) provision: Provision,
}

#[cfg(target_os = "linux")]
impl Remembered {
    fn is_called(&self, shelf: Shelf, name: &str) -> bool {
        self.provision.shelf == shelf && self.provision.name == name
    }
}

/// A sandbox that serves calls.
pub(crate) struct Occupant {
    pub(crate) executor: Arc<dyn Executor>,
    pub(super) stay: Stay,
    /// Something was done in it, so that something is gone when it is lost.
    is_used: AtomicBool,
    /// Cancelled when it serves no calls any more, for the reason that was set before.
    gone: CancellationToken,
    reason: OnceLock<SandboxError>,
    /// Cancelled when a call found it lost, for the reason that was set before.
    condemned: CancellationToken,
}

impl Berth {
    pub(crate) fn new(notice: Option<Notice>, mooring: Arc<Mooring>, meter: Option<SandboxMeter>) -> Self {
        Self {
            occupant: watch::Sender::new(None),
            mooring,
            meter,
            state: Mutex::new(State { notice, ..State::default() }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sandbox, to be used, when there is one that has not ended. It may be paused.
    pub(super) fn visit(&self) -> Option<Visit> {
        Visit::begin(self.live()?)
    }

    /// The sandbox, when there is one that has not ended.
    pub(crate) fn live(&self) -> Option<Arc<Occupant>> {
        self.occupant.borrow().as_ref().filter(|occupant| occupant.is_live()).cloned()
    }

    /// Resolves when there is a sandbox. The one that is there and has ended already is none.
    pub(crate) async fn occupied(&self) {
        let mut occupants = self.occupant.subscribe();
        let is_live = |occupant: &Option<Arc<Occupant>>| occupant.as_ref().is_some_and(|one| one.is_live());
        // The sender is here.
        let _ = occupants.wait_for(is_live).await;
    }

    /// Has calls served by this sandbox.
    pub(crate) fn occupy(&self, executor: Arc<dyn Executor>, stay: Stay) -> Arc<Occupant> {
        let occupant = Arc::new(Occupant::new(executor, stay));
        self.occupant.send_replace(Some(Arc::clone(&occupant)));
        occupant
    }

    /// Has it serve no more calls, and ends those that are under way.
    pub(crate) fn vacate(&self, occupant: &Arc<Occupant>, reason: SandboxError) {
        let notice = Notice::lost(&reason, occupant.executor.isolation());
        self.clear(occupant, reason, notice);
    }

    /// The same for one that nobody uses and that is put away.
    pub(super) fn put_away(&self, occupant: &Arc<Occupant>) {
        let reason = SandboxError::new(SandboxErrorKind::Lost, "the sandbox was put away, as nobody used it");
        self.clear(occupant, reason, Notice::put_away(occupant.executor.isolation()));
    }

    fn clear(&self, occupant: &Arc<Occupant>, reason: SandboxError, notice: Notice) {
        if occupant.is_used.load(Ordering::Acquire) {
            self.state().notice = Some(notice);
        }
        self.occupant.send_if_modified(|current| {
            let is_it = current.as_ref().is_some_and(|current| Arc::ptr_eq(current, occupant));
            if is_it {
                *current = None;
            }
            is_it
        });
        let _ = occupant.reason.set(reason);
        occupant.gone.cancel();
    }

    /// What the model has not been told, when there is a sandbox of which it is true.
    pub(crate) fn take_notice(&self) -> Option<Notice> {
        self.live()?;
        self.state().notice.take()
    }

    /// What is to be on the shelves.
    #[cfg(target_os = "linux")]
    pub(crate) fn provisions(&self) -> Vec<Remembered> {
        self.state().provisions.clone()
    }

    /// Forgets what has this name: no other sandbox gets it.
    #[cfg(target_os = "linux")]
    pub(crate) fn forget(&self, shelf: Shelf, name: &str) {
        self.state().provisions.retain(|known| !known.is_called(shelf, name));
    }

    /// Remembers what was put on the shelves of this sandbox, which may be gone since: then the next one gets it. Says
    /// no when there is a next one already, which may not have got it.
    #[cfg(target_os = "linux")]
    pub(crate) fn remember(&self, provision: &Provision, occupant: &Arc<Occupant>) -> bool {
        // What comes to be there is read under the same lock ([`Berth::occupy_with`]).
        let mut state = self.state();
        let is_current = match &*self.occupant.borrow() {
            None => true,
            Some(current) => Arc::ptr_eq(current, occupant),
        };
        if is_current
            && !state.provisions.iter().any(|known| known.is_called(provision.shelf, &provision.name))
        {
            let number = state.next;
            state.next += 1;
            state.provisions.push(Remembered { number, provision: provision.clone() });
        }
        is_current
    }

    /// As [`Berth::occupy`], unless something else is to be on the shelves by now than these.
    #[cfg(target_os = "linux")]
    pub(crate) fn occupy_with(
        &self,
        executor: &Arc<dyn Executor>,
        given: &[Remembered],
        stay: impl FnOnce() -> Stay,
    ) -> Option<Arc<Occupant>> {
        let state = self.state();
        let numbers = |some: &[Remembered]| some.iter().map(|one| one.number).collect::<Vec<_>>();
        (numbers(&state.provisions) == numbers(given)).then(|| self.occupy(Arc::clone(executor), stay()))
    }
}

impl Occupant {
    fn new(executor: Arc<dyn Executor>, stay: Stay) -> Self {
        Self {
            executor,
            stay,
            is_used: AtomicBool::new(false),
            gone: CancellationToken::new(),
            reason: OnceLock::new(),
            condemned: CancellationToken::new(),
        }
    }

    /// Whether it has not ended, as far as anybody knows.
    fn is_live(&self) -> bool {
        !self.gone.is_cancelled()
            && !self.stay.is_over()
            && !self.condemned.is_cancelled()
            && self.executor.ended().now_or_never().is_none()
    }

    /// Follows a call in it: one that does not end with its sandbox is ended here.
    pub(crate) async fn follow<T>(
        &self,
        call: impl Future<Output = Result<T, SandboxError>>,
    ) -> Result<T, SandboxError> {
        self.is_used.store(true, Ordering::Release);
        tokio::select! {
            biased;
            result = call => result.inspect_err(|error| self.look_at(error)),
            lost = self.lost() => Err(lost),
        }
    }

    /// A sandbox that cannot tell its own end is found out by its calls.
    pub(crate) fn look_at(&self, error: &SandboxError) {
        if error.kind() == SandboxErrorKind::Lost {
            let _ = self.reason.set(error.clone());
            self.condemned.cancel();
        }
    }

    /// Resolves when it serves no calls any more.
    pub(crate) async fn lost(&self) -> SandboxError {
        self.gone.cancelled().await;
        self.reason()
    }

    /// Resolves when it has ended, by its own word or by what a call found.
    pub(crate) async fn ended(&self) -> SandboxError {
        tokio::select! {
            biased;
            reason = self.executor.ended() => reason,
            () = self.condemned.cancelled() => self.reason(),
        }
    }

    fn reason(&self) -> SandboxError {
        let reason = self.reason.get().cloned();
        reason.unwrap_or_else(|| SandboxError::new(SandboxErrorKind::Lost, "the sandbox was lost"))
    }
}

impl fmt::Debug for Berth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let occupant = self.occupant.borrow();
        let executor = occupant.as_ref().map(|occupant| &occupant.executor);
        f.debug_struct("Berth").field("sandbox", &executor).finish_non_exhaustive()
    }
}
