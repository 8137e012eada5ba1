//! What comes between the decision to pause and the pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conjure_sandbox::{Command, CommandOutcome, Executor, Layout, LineRange, View, WriteResult};
use conjure_toolbox::fake::FakeExecutor;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::*;
use crate::executors::idle_tracking::{IdleAction, IdlePolicy, SandboxUsage};
use crate::executors::sandbox_slot::SandboxSlot;

/// Counts what is asked of it.
#[derive(Debug, Default)]
struct Counting {
    fake: FakeExecutor,
    pauses: AtomicU32,
    resumes: AtomicU32,
}

impl Counting {
    fn counts(&self) -> (u32, u32) {
        (self.pauses.load(Ordering::SeqCst), self.resumes.load(Ordering::SeqCst))
    }
}

impl Executor for Counting {
    fn layout(&self) -> &Layout {
        self.fake.layout()
    }

    fn run<'a>(
        &'a self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>> {
        self.fake.run(command, options)
    }

    fn view<'a>(
        &'a self,
        path: &'a str,
        range: Option<LineRange>,
        max_bytes: u64,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<View, SandboxError>> {
        self.fake.view(path, range, max_bytes, options)
    }

    fn create_file<'a>(
        &'a self,
        path: &'a str,
        content: &'a [u8],
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        self.fake.create_file(path, content, options)
    }

    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        old: &'a str,
        new: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        self.fake.str_replace(path, old, new, options)
    }

    fn pause(&self, _: CallOptions) -> BoxFuture<'_, Result<(), SandboxError>> {
        self.pauses.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(()) })
    }

    fn resume(&self, _: CallOptions) -> BoxFuture<'_, Result<(), SandboxError>> {
        self.resumes.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(()) })
    }
}

/// A slot with an executor, and its live sandbox.
fn slot(idle_policy: IdlePolicy) -> (SandboxSlot, Arc<Counting>, Arc<LiveSandbox>) {
    let (slot, counting) = (SandboxSlot::new(None, Arc::default(), None), Arc::<Counting>::default());
    let sandbox = slot.set(Arc::clone(&counting) as _, SandboxUsage::new(idle_policy));
    (slot, counting, sandbox)
}

fn paused_after(pause_after: Duration) -> IdlePolicy {
    IdlePolicy { pause_after: Some(pause_after), unused_after: None }
}

const SHORT: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn nothing_is_due_while_somebody_uses_it() {
    let (slot, _, sandbox) = slot(IdlePolicy { pause_after: Some(SHORT), unused_after: Some(SHORT) });
    let visit = slot.acquire().unwrap();
    let hour = SystemClock.sleep_until(SystemClock.deadline(Duration::from_secs(3600)));
    tokio::select! {
        biased;
        due = sandbox.usage.next_action(PauseState::Running) => panic!("{due:?} is due"),
        () = hour => {}
    }
    drop(visit);
    // A pause that would come no earlier than the end never comes.
    assert_eq!(sandbox.usage.next_action(PauseState::Running).await, IdleAction::Stop);
    assert!(sandbox.usage.is_running());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_after_the_decision_takes_it_back_and_is_not_paused() {
    let (slot, counting, sandbox) = slot(paused_after(SHORT));
    assert_eq!(sandbox.usage.next_action(PauseState::Running).await, IdleAction::Pause);
    let visit = slot.acquire().unwrap();
    visit.resume(&options()).await.unwrap();
    assert_eq!(pause(&sandbox).await, PauseState::Running);
    assert_eq!(counting.counts(), (0, 1), "while somebody uses it nobody pauses it");
    drop(visit);
    // Also where it is over by then, and where it has the turn.
    let visit = slot.acquire().unwrap();
    drop(visit);
    assert_eq!(pause(&sandbox).await, PauseState::Running);
    assert_eq!(sandbox.usage.next_action(PauseState::Running).await, IdleAction::Pause);
    let visit = slot.acquire().unwrap();
    {
        let _turn = visit.usage.pause_lock.lock().await;
        assert_eq!(pause(&sandbox).await, PauseState::Running);
    }
    drop(visit);
    assert_eq!(counting.counts(), (0, 1));
    assert_eq!(sandbox.usage.next_action(PauseState::Running).await, IdleAction::Pause);
    assert_eq!(pause(&sandbox).await, PauseState::Paused);
    assert_eq!(counting.counts(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_not_begun_finds_it_paused_and_takes_that_back() {
    let (slot, counting, sandbox) = slot(paused_after(SHORT));
    assert_eq!(sandbox.usage.next_action(PauseState::Running).await, IdleAction::Pause);
    let visit = slot.acquire().unwrap();
    assert_eq!(pause(&sandbox).await, PauseState::Paused);
    visit.resume(&options()).await.unwrap();
    visit.resume(&options()).await.unwrap();
    assert_eq!(counting.counts(), (1, 1));
    assert_eq!(
        sandbox.usage.next_action(PauseState::Paused).now_or_never(),
        Some(IdleAction::Resumed),
        "whoever watches hears of it"
    );
}

#[tokio::test(start_paused = true)]
async fn what_does_not_run_anything_leaves_it_paused() {
    let (slot, counting, sandbox) = slot(paused_after(SHORT));
    assert_eq!(sandbox.usage.next_action(PauseState::Running).await, IdleAction::Pause);
    assert_eq!(pause(&sandbox).await, PauseState::Paused);
    drop(slot.acquire().unwrap());
    let hour = SystemClock.sleep_until(SystemClock.deadline(Duration::from_secs(3600)));
    tokio::select! {
        biased;
        due = sandbox.usage.next_action(PauseState::Paused) => panic!("{due:?} is due"),
        () = hour => {}
    }
    assert_eq!(counting.counts(), (1, 0));
}
