//! Sandboxes that do not start, start slowly, or die again and again.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::executors::{ExecutorOptions, ExecutorSource, PriorSandbox, SupervisedExecutor};
use conjure_actors::supervision::{Root, Status, Strategy, SupervisorSpec};
use conjure_base::{Clock, Deadline, SystemClock};
use conjure_sandbox::{CallOptions, Command, Executor, Layout, SandboxError, SandboxErrorKind};
use conjure_toolbox::fake::{FakeCommand, FakeExecutor};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::fixture::{Fixture, Kind, id, options, soon, until};
use crate::for_kinds;
use crate::source::Plan;

for_kinds! {
    a_start_that_fails_is_the_error_of_the_call_and_the_next_call_tries_again,
    a_replacement_that_fails_again_and_again_is_left_to_the_next_call,
    a_start_that_hangs_ends_at_its_deadline,
    a_call_does_not_wait_beyond_its_deadline,
    a_call_dropped_during_the_replacement_does_no_harm,
    calls_at_once_share_the_first_sandbox,
}

async fn a_start_that_fails_is_the_error_of_the_call_and_the_next_call_tries_again(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    fixture.source.plan([Plan::Fail, Plan::Fail]);
    for times in 1..=2 {
        let error = fixture.run("true").await.unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::Exhausted);
        assert_eq!(error.to_string(), "the sandbox could not be started: there is no room on this machine");
        assert_eq!(*fixture.source.calls.borrow(), times, "a permanent failure is not retried");
    }
    assert_eq!(fixture.sh("echo well").await, "well\n");
    assert_eq!(fixture.executor.take_model_notice(), None, "nothing was removed");
    fixture.end().await;
}

async fn a_replacement_that_fails_again_and_again_is_left_to_the_next_call(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    fixture.start_background_sleeper().await;
    fixture.source.plan([Plan::Fail, Plan::Fail, Plan::Fail, Plan::Fail]);
    fixture.kill_guest();
    // Three attempts, after which it is left alone.
    let supervisor = fixture.executor.supervisor();
    let failure = supervisor.wait_settled(&id("executor"), soon()).await.unwrap().unwrap();
    assert_eq!(failure.status, Status::Quarantined);
    assert_eq!(*fixture.source.calls.borrow(), 4);
    let error = fixture.run("true").await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Exhausted, "{error}");
    assert_eq!(*fixture.source.calls.borrow(), 5, "one more for the call");
    assert_eq!(fixture.executor.take_model_notice(), None, "no sandbox would match");
    assert_eq!(fixture.sh("echo well").await, "well\n");
    assert!(fixture.executor.take_model_notice().is_some());
    fixture.end().await;
}

async fn a_start_that_hangs_ends_at_its_deadline(kind: Kind) {
    let mut short = ExecutorOptions::default();
    short.start_timeout = Duration::from_millis(100);
    let fixture = Fixture::with(kind, short).await;
    fixture.source.plan([Plan::Hang]);
    let error = fixture.run("true").await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unavailable);
    assert!(error.to_string().contains("it took longer than 100ms"), "{error}");
    fixture.end().await;
}

async fn a_call_does_not_wait_beyond_its_deadline(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    let gate = Arc::new(Semaphore::new(0));
    fixture.source.plan([Plan::Wait(Arc::clone(&gate))]);
    let short = CallOptions::until(SystemClock.deadline(Duration::from_millis(50)));
    let error = fixture.executor.run(Command::bash("true"), short).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::TimedOut, "{error}");
    let cancelled = options();
    cancelled.cancel.cancel();
    let cancelled = fixture.executor.run(Command::bash("true"), cancelled).await.unwrap_err();
    assert_eq!(cancelled.kind(), SandboxErrorKind::Cancelled, "{cancelled}");
    // Its start continues, and serves the next call.
    gate.add_permits(1);
    assert_eq!(fixture.sh("echo well").await, "well\n");
    assert_eq!(*fixture.source.calls.borrow(), 1);
    fixture.end().await;
}

async fn a_call_dropped_during_the_replacement_does_no_harm(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    fixture.start_background_sleeper().await;
    let gate = Arc::new(Semaphore::new(0));
    fixture.source.plan([Plan::Wait(Arc::clone(&gate))]);
    fixture.kill_guest();
    fixture.source.until_calls(2).await;
    for _ in 0..3 {
        let mut call = fixture.executor.run(Command::bash("echo dropped > file"), options());
        for _ in 0..100 {
            assert!(call.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        drop(call);
    }
    gate.add_permits(1);
    assert_eq!(fixture.sh("test -e file || echo absent").await, "absent\n");
    assert_eq!(*fixture.source.calls.borrow(), 2);
    fixture.end().await;
}

async fn calls_at_once_share_the_first_sandbox(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    let calls = (0..8).map(|_| fixture.sh("echo well"));
    let outcomes = futures_util::future::join_all(calls).await;
    assert_eq!(outcomes, ["well\n"; 8]);
    assert_eq!(*fixture.source.calls.borrow(), 1);
    fixture.end().await;
}

/// A source of sandboxes that end after a second, or that report their end only in calls.
#[derive(Debug)]
struct ShortLivedSource {
    layout: Layout,
    calls: watch::Sender<usize>,
    /// Later sandboxes keep running, and end during a call.
    mortal: usize,
    left: Arc<Semaphore>,
}

#[derive(Debug)]
struct ShortLivedSandbox {
    fake: FakeExecutor,
    /// When it ends by itself.
    ends: Deadline,
    /// Its leftovers are removed when this many permits are available.
    left: Arc<Semaphore>,
}

impl Executor for ShortLivedSandbox {
    fn layout(&self) -> &Layout {
        self.fake.layout()
    }

    fn run<'a>(
        &'a self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<conjure_sandbox::CommandOutcome, SandboxError>> {
        self.fake.run(command, options)
    }

    fn view<'a>(
        &'a self,
        path: &'a str,
        range: Option<conjure_sandbox::LineRange>,
        max_bytes: u64,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<conjure_sandbox::View, SandboxError>> {
        self.fake.view(path, range, max_bytes, options)
    }

    fn create_file<'a>(
        &'a self,
        path: &'a str,
        content: &'a [u8],
        options: CallOptions,
    ) -> BoxFuture<'a, Result<conjure_sandbox::WriteResult, SandboxError>> {
        self.fake.create_file(path, content, options)
    }

    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        old: &'a str,
        new: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<conjure_sandbox::WriteResult, SandboxError>> {
        self.fake.str_replace(path, old, new, options)
    }

    fn wait_ended(&self) -> BoxFuture<'_, SandboxError> {
        Box::pin(async {
            SystemClock.sleep_until(self.ends).await;
            lost()
        })
    }

    /// At once; the rest is behind that.
    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn cleanup(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.left.acquire().await.unwrap().forget() })
    }
}

fn lost() -> SandboxError {
    SandboxError::new(SandboxErrorKind::Lost, "the sandbox was lost: by request of the test")
}

impl ExecutorSource for ShortLivedSource {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn create(&self, _: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        let calls = *self.calls.borrow() + 1;
        self.calls.send_replace(calls);
        let fake = FakeExecutor::new().with_command("die", FakeCommand::FailsToStart(lost()));
        let executor: Box<dyn Executor> = if calls <= self.mortal {
            let ends = SystemClock.deadline(Duration::from_secs(1));
            Box::new(ShortLivedSandbox { fake, ends, left: Arc::clone(&self.left) })
        } else {
            Box::new(fake)
        };
        Box::pin(async { Ok(executor) })
    }
}

async fn short_lived_source(
    mortal: usize,
    remaining: usize,
) -> (Root, SupervisedExecutor, Arc<ShortLivedSource>) {
    let layout = FakeExecutor::new().layout().clone();
    let remaining = Arc::new(Semaphore::new(remaining));
    let source = Arc::new(ShortLivedSource { layout, calls: watch::Sender::new(0), mortal, left: remaining });
    let (options, prior) = (ExecutorOptions::default(), PriorSandbox::None);
    let (child, executor) =
        SupervisedExecutor::detached(id("executors"), Arc::clone(&source) as _, options, prior).unwrap();
    let root = SupervisorSpec::ordered(id("root"), Strategy::OneForOne).child(child).unwrap().build().0;
    (Root::spawn(root, soon()).await.unwrap(), executor, source)
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_keeps_crashing_is_replaced_by_the_next_call() {
    let (root, executor, source) = short_lived_source(1_000, Semaphore::MAX_PERMITS).await;
    let hour = || SystemClock.sleep_until(SystemClock.deadline(Duration::from_secs(3600)));
    for calls in 1..=2 {
        executor.run(Command::bash("true"), options()).await.unwrap();
        hour().await;
        // It was replaced five times, and then the replacement stopped.
        assert_eq!(*source.calls.borrow(), 6 * calls);
        let child = executor.supervisor().child(&id("executor")).unwrap();
        assert_eq!(child.status, Status::Quarantined);
    }
    root.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_crash_that_is_not_reported_is_detected_by_calls() {
    let (root, executor, source) = short_lived_source(0, 0).await;
    let error = executor.run(Command::bash("die"), options()).await.unwrap_err();
    assert_eq!(error, lost());
    until("it is replaced", || *source.calls.borrow() == 2).await;
    executor.create_file("file", b"x", options()).await.unwrap();
    assert!(executor.take_model_notice().unwrap().contains("by request of the test"));
    root.shutdown(soon()).await.unwrap();
}

/// The next call does not wait for the removal of leftovers; a shutdown does.
#[tokio::test(start_paused = true)]
async fn leftovers_of_a_sandbox_are_removed_in_the_background() {
    let (root, executor, source) = short_lived_source(1, 0).await;
    executor.run(Command::bash("true"), options()).await.unwrap();
    SystemClock.sleep_until(SystemClock.deadline(Duration::from_secs(2))).await;
    executor.run(Command::bash("true"), options()).await.unwrap();
    assert_eq!(*source.calls.borrow(), 2);
    assert!(executor.take_model_notice().unwrap().contains("by request of the test"));
    let mut cleanup = executor.cleanup();
    assert!(timeout(Duration::from_secs(1), &mut cleanup).await.is_err());
    source.left.add_permits(1);
    timeout(Duration::from_secs(1), cleanup).await.unwrap();
    assert_eq!(source.left.available_permits(), 0);
    root.shutdown(soon()).await.unwrap();
}
