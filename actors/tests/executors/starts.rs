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

use crate::bed::{Bed, Kind, id, options, soon, until};
use crate::for_kinds;
use crate::source::Plan;

for_kinds! {
    a_start_that_fails_is_the_error_of_the_call_and_the_next_call_tries_again,
    a_replacement_that_fails_again_and_again_is_left_to_the_next_call,
    a_start_that_hangs_ends_at_its_deadline,
    a_call_does_not_wait_longer_than_it_may,
    a_call_that_is_dropped_while_the_replacement_is_made_does_no_harm,
    calls_at_once_share_the_first_sandbox,
}

async fn a_start_that_fails_is_the_error_of_the_call_and_the_next_call_tries_again(kind: Kind) {
    let bed = Bed::of(kind).await;
    bed.source.plan([Plan::Fail, Plan::Fail]);
    for times in 1..=2 {
        let error = bed.run("true").await.unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::Exhausted);
        assert_eq!(error.to_string(), "the sandbox could not be started: there is no room on this machine");
        assert_eq!(*bed.source.calls.borrow(), times, "nobody tries by himself what never worked");
    }
    assert_eq!(bed.sh("echo well").await, "well\n");
    assert_eq!(bed.executor.take_model_notice(), None, "nothing is gone");
    bed.end().await;
}

async fn a_replacement_that_fails_again_and_again_is_left_to_the_next_call(kind: Kind) {
    let bed = Bed::of(kind).await;
    bed.leave_a_sleeper().await;
    bed.source.plan([Plan::Fail, Plan::Fail, Plan::Fail, Plan::Fail]);
    bed.kill_guest();
    // Three attempts, after which it is left alone.
    let supervisor = bed.executor.supervisor();
    let left = supervisor.wait_settled(&id("executor"), soon()).await.unwrap().unwrap();
    assert_eq!(left.status, Status::Quarantined);
    assert_eq!(*bed.source.calls.borrow(), 4);
    let error = bed.run("true").await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Exhausted, "{error}");
    assert_eq!(*bed.source.calls.borrow(), 5, "one more for the call");
    assert_eq!(bed.executor.take_model_notice(), None, "there is no sandbox of which it would be true");
    assert_eq!(bed.sh("echo well").await, "well\n");
    assert!(bed.executor.take_model_notice().is_some());
    bed.end().await;
}

async fn a_start_that_hangs_ends_at_its_deadline(kind: Kind) {
    let mut short = ExecutorOptions::default();
    short.start_timeout = Duration::from_millis(100);
    let bed = Bed::with(kind, short).await;
    bed.source.plan([Plan::Hang]);
    let error = bed.run("true").await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unavailable);
    assert!(error.to_string().contains("it took longer than 100ms"), "{error}");
    bed.end().await;
}

async fn a_call_does_not_wait_longer_than_it_may(kind: Kind) {
    let bed = Bed::of(kind).await;
    let gate = Arc::new(Semaphore::new(0));
    bed.source.plan([Plan::Wait(Arc::clone(&gate))]);
    let short = CallOptions::until(SystemClock.deadline(Duration::from_millis(50)));
    let late = bed.executor.run(Command::bash("true"), short).await.unwrap_err();
    assert_eq!(late.kind(), SandboxErrorKind::TimedOut, "{late}");
    let cancelled = options();
    cancelled.cancel.cancel();
    let cancelled = bed.executor.run(Command::bash("true"), cancelled).await.unwrap_err();
    assert_eq!(cancelled.kind(), SandboxErrorKind::Cancelled, "{cancelled}");
    // Its start goes on, and serves the next call.
    gate.add_permits(1);
    assert_eq!(bed.sh("echo well").await, "well\n");
    assert_eq!(*bed.source.calls.borrow(), 1);
    bed.end().await;
}

async fn a_call_that_is_dropped_while_the_replacement_is_made_does_no_harm(kind: Kind) {
    let bed = Bed::of(kind).await;
    bed.leave_a_sleeper().await;
    let gate = Arc::new(Semaphore::new(0));
    bed.source.plan([Plan::Wait(Arc::clone(&gate))]);
    bed.kill_guest();
    bed.source.until_asked(2).await;
    for _ in 0..3 {
        let mut call = bed.executor.run(Command::bash("echo dropped > file"), options());
        for _ in 0..100 {
            assert!(call.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        drop(call);
    }
    gate.add_permits(1);
    assert_eq!(bed.sh("test -e file || echo absent").await, "absent\n");
    assert_eq!(*bed.source.calls.borrow(), 2);
    bed.end().await;
}

async fn calls_at_once_share_the_first_sandbox(kind: Kind) {
    let bed = Bed::of(kind).await;
    let calls = (0..8).map(|_| bed.sh("echo well"));
    let said = futures_util::future::join_all(calls).await;
    assert_eq!(said, ["well\n"; 8]);
    assert_eq!(*bed.source.calls.borrow(), 1);
    bed.end().await;
}

/// Gives away what ends by itself after a second, or what says so only in its calls.
#[derive(Debug)]
struct Dying {
    layout: Layout,
    calls: watch::Sender<usize>,
    /// Those after so many live on, and end by a call.
    mortal: usize,
    left: Arc<Semaphore>,
}

#[derive(Debug)]
struct Mortal {
    fake: FakeExecutor,
    /// When it ends by itself.
    ends: Deadline,
    /// What it leaves is gone when there are so many permits.
    left: Arc<Semaphore>,
}

impl Executor for Mortal {
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
    SandboxError::new(SandboxErrorKind::Lost, "the sandbox was lost: it was made so")
}

impl ExecutorSource for Dying {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn create(&self, _: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        let calls = *self.calls.borrow() + 1;
        self.calls.send_replace(calls);
        let fake = FakeExecutor::new().with_command("die", FakeCommand::FailsToStart(lost()));
        let made: Box<dyn Executor> = if calls <= self.mortal {
            let ends = SystemClock.deadline(Duration::from_secs(1));
            Box::new(Mortal { fake, ends, left: Arc::clone(&self.left) })
        } else {
            Box::new(fake)
        };
        Box::pin(async { Ok(made) })
    }
}

async fn dying(mortal: usize, left: usize) -> (Root, SupervisedExecutor, Arc<Dying>) {
    let layout = FakeExecutor::new().layout().clone();
    let left = Arc::new(Semaphore::new(left));
    let source = Arc::new(Dying { layout, calls: watch::Sender::new(0), mortal, left });
    let (options, prior) = (ExecutorOptions::default(), PriorSandbox::None);
    let (child, executor) =
        SupervisedExecutor::detached(id("executors"), Arc::clone(&source) as _, options, prior).unwrap();
    let root = SupervisorSpec::ordered(id("root"), Strategy::OneForOne).child(child).unwrap().build().0;
    (Root::spawn(root, soon()).await.unwrap(), executor, source)
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_dies_again_and_again_is_left_to_the_next_call() {
    let (root, executor, source) = dying(1_000, Semaphore::MAX_PERMITS).await;
    let hour = || SystemClock.sleep_until(SystemClock.deadline(Duration::from_secs(3600)));
    for calls in 1..=2 {
        executor.run(Command::bash("true"), options()).await.unwrap();
        hour().await;
        // It was replaced five times, and then nobody went on by himself.
        assert_eq!(*source.calls.borrow(), 6 * calls);
        let left = executor.supervisor().child(&id("executor")).unwrap();
        assert_eq!(left.status, Status::Quarantined);
    }
    root.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn an_executor_that_cannot_tell_its_end_is_found_out_by_its_calls() {
    let (root, executor, source) = dying(0, 0).await;
    let error = executor.run(Command::bash("die"), options()).await.unwrap_err();
    assert_eq!(error, lost());
    until("it is replaced", || *source.calls.borrow() == 2).await;
    executor.create_file("file", b"x", options()).await.unwrap();
    assert!(executor.take_model_notice().unwrap().contains("it was made so"));
    root.shutdown(soon()).await.unwrap();
}

/// Whoever needs the next one does not wait for the removal of what nobody needs; whoever ends does.
#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_sandbox_is_removed_behind_the_next_one() {
    let (root, executor, source) = dying(1, 0).await;
    executor.run(Command::bash("true"), options()).await.unwrap();
    SystemClock.sleep_until(SystemClock.deadline(Duration::from_secs(2))).await;
    executor.run(Command::bash("true"), options()).await.unwrap();
    assert_eq!(*source.calls.borrow(), 2);
    assert!(executor.take_model_notice().unwrap().contains("it was made so"));
    let mut cleanup = executor.cleanup();
    assert!(timeout(Duration::from_secs(1), &mut cleanup).await.is_err());
    source.left.add_permits(1);
    timeout(Duration::from_secs(1), cleanup).await.unwrap();
    assert_eq!(source.left.available_permits(), 0);
    root.shutdown(soon()).await.unwrap();
}
