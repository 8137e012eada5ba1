//! Pauses of executors that do what a test says: they cannot be paused, fail at it, hang in it, or end in the meantime.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_actors::executors::{ExecutorOptions, ExecutorSource, PriorSandbox, SupervisedExecutor};
use conjure_actors::supervision::{Root, Strategy, SupervisorSpec};
use conjure_base::{Clock, Deadline, SystemClock};
use conjure_sandbox::{
    CallOptions, Command, CommandOutcome, Executor, Layout, LineRange, SandboxError, SandboxErrorKind, View,
    WriteResult,
};
use conjure_toolbox::fake::{FakeCommand, FakeExecutor, exited};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join, join_all};
use tokio::sync::{Barrier, Semaphore};

use crate::fixture::{id, options, soon};

/// The outcome of a pause or resume. The default is success.
enum PauseOutcome {
    Fail(SandboxErrorKind),
    /// It is done when the semaphore has a permit.
    Wait(Arc<Semaphore>),
    /// It never says how it went.
    Hang,
}

/// The operations of all sandboxes of a test.
#[derive(Default)]
struct Log {
    made: usize,
    pauses: usize,
    resumes: usize,
    /// In this moment.
    running: usize,
    is_still: bool,
    is_pausing: bool,
    /// Violations, such as overlapping operations.
    wrong: Vec<&'static str>,
    plans_of_pauses: VecDeque<PauseOutcome>,
    plans_of_resumes: VecDeque<PauseOutcome>,
}

#[derive(Clone)]
struct FakeSource(Arc<Mutex<Log>>);

impl FakeSource {
    fn look<T>(&self, look: impl FnOnce(&mut Log) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    /// How many were made, how often they were paused and resumed.
    fn counts(&self) -> (usize, usize, usize) {
        self.look(|log| (log.made, log.pauses, log.resumes))
    }

    /// Sandboxes of these, in a tree.
    async fn tree(&self, pause_after: Duration) -> (Root, SupervisedExecutor) {
        let mut options = ExecutorOptions::default();
        options.pause_after = Some(pause_after);
        let source =
            Arc::new(PausableSource { source: self.clone(), layout: FakeExecutor::new().layout().clone() });
        let (child, executor) =
            SupervisedExecutor::detached(id("executors"), source, options, PriorSandbox::None).unwrap();
        let root = SupervisorSpec::ordered(id("root"), Strategy::OneForOne).child(child).unwrap().build().0;
        (Root::spawn(root, soon()).await.unwrap(), executor)
    }
}

impl std::fmt::Debug for FakeSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeSource").finish_non_exhaustive()
    }
}

fn fake_source() -> FakeSource {
    FakeSource(Arc::default())
}

#[derive(Debug)]
struct PausableSource {
    source: FakeSource,
    layout: Layout,
}

impl ExecutorSource for PausableSource {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn create(&self, _: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        self.source.look(|log| (log.made, log.is_still) = (log.made + 1, false));
        let fake = FakeExecutor::new().with_command("true", FakeCommand::Exits(exited(0, "")));
        let resting = PausableSandbox { source: self.source.clone(), fake };
        Box::pin(async { Ok(Box::new(resting) as Box<dyn Executor>) })
    }
}

#[derive(Debug)]
struct PausableSandbox {
    source: FakeSource,
    fake: FakeExecutor,
}

impl PausableSandbox {
    async fn perform(plan: Option<PauseOutcome>) -> Result<(), SandboxError> {
        match plan {
            None => Ok(()),
            Some(PauseOutcome::Fail(kind)) => Err(SandboxError::new(kind, "by request of the test")),
            Some(PauseOutcome::Wait(gate)) => {
                gate.acquire().await.unwrap().forget();
                Ok(())
            }
            Some(PauseOutcome::Hang) => std::future::pending().await,
        }
    }
}

/// Something is under way until this is dropped, which is noted so.
struct OperationGuard<'a>(&'a FakeSource, fn(&mut Log));

impl Drop for OperationGuard<'_> {
    fn drop(&mut self) {
        self.0.look(self.1);
    }
}

impl Executor for PausableSandbox {
    fn layout(&self) -> &Layout {
        self.fake.layout()
    }

    fn run<'a>(
        &'a self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>> {
        Box::pin(async {
            self.source.look(|log| {
                if log.is_still || log.is_pausing {
                    log.wrong.push("a command was run in what stands still");
                }
                log.running += 1;
            });
            let _running = OperationGuard(&self.source, |log| log.running -= 1);
            tokio::task::yield_now().await;
            self.fake.run(command, options).await
        })
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
        Box::pin(async {
            let plan = self.source.look(|log| {
                if log.running > 0 || log.is_pausing {
                    log.wrong.push("it was paused while a command ran");
                }
                (log.pauses, log.is_pausing) = (log.pauses + 1, true);
                log.plans_of_pauses.pop_front()
            });
            let _under_way = OperationGuard(&self.source, |log| log.is_pausing = false);
            tokio::task::yield_now().await;
            Self::perform(plan).await?;
            self.source.look(|log| log.is_still = true);
            Ok(())
        })
    }

    fn resume(&self, _: CallOptions) -> BoxFuture<'_, Result<(), SandboxError>> {
        Box::pin(async {
            let plan = self.source.look(|log| {
                if log.is_pausing {
                    log.wrong.push("it was resumed while it was being paused");
                }
                log.resumes += 1;
                log.plans_of_resumes.pop_front()
            });
            tokio::task::yield_now().await;
            Self::perform(plan).await?;
            self.source.look(|log| log.is_still = false);
            Ok(())
        })
    }
}

async fn run(executor: &SupervisedExecutor) -> Result<(), SandboxError> {
    executor.run(Command::bash("true"), options()).await.map(drop)
}

async fn advance(time: Duration) {
    SystemClock.sleep_until(SystemClock.deadline(time)).await;
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn one_pause_lasts_until_the_next_call() {
    let fixture = fake_source();
    let (root, executor) = fixture.tree(MINUTE).await;
    for round in 1..=3 {
        run(&executor).await.unwrap();
        advance(MINUTE - Duration::from_secs(1)).await;
        assert_eq!(fixture.counts(), (1, round - 1, round - 1), "it is too early");
        advance(HOUR).await;
        assert_eq!(fixture.counts(), (1, round, round - 1));
    }
    root.shutdown(soon()).await.unwrap();
    assert_eq!(fixture.counts(), (1, 3, 2), "its end does not resume it");
}

#[tokio::test(start_paused = true)]
async fn an_unpausable_sandbox_is_tried_once() {
    let fixture = fake_source();
    fixture.look(|log| log.plans_of_pauses.push_back(PauseOutcome::Fail(SandboxErrorKind::Unsupported)));
    let (root, executor) = fixture.tree(MINUTE).await;
    for _ in 0..3 {
        run(&executor).await.unwrap();
        advance(HOUR).await;
    }
    assert_eq!(fixture.counts(), (1, 1, 0));
    root.shutdown(soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_pause_is_undone_and_retried_later() {
    let fixture = fake_source();
    fixture.look(|log| {
        log.plans_of_pauses.extend([SandboxErrorKind::Io, SandboxErrorKind::TimedOut].map(PauseOutcome::Fail))
    });
    let (root, executor) = fixture.tree(Duration::from_millis(1)).await;
    run(&executor).await.unwrap();
    advance(Duration::from_secs(29)).await;
    assert_eq!(fixture.counts(), (1, 1, 1), "it continues, and is not retried for some time");
    advance(Duration::from_secs(2)).await;
    assert_eq!(fixture.counts(), (1, 2, 2));
    advance(MINUTE).await;
    assert_eq!(fixture.counts(), (1, 3, 2), "then it was paused");
    run(&executor).await.unwrap();
    assert_eq!(fixture.counts(), (1, 3, 3));
    root.shutdown(soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_never_completes_is_abandoned() {
    let fixture = fake_source();
    fixture.look(|log| log.plans_of_pauses.push_back(PauseOutcome::Hang));
    fixture.look(|log| {
        log.plans_of_resumes.extend([PauseOutcome::Hang, PauseOutcome::Fail(SandboxErrorKind::Io)])
    });
    let (root, executor) = fixture.tree(MINUTE).await;
    run(&executor).await.unwrap();
    advance(2 * MINUTE).await;
    assert_eq!(fixture.counts(), (1, 1, 1));
    // A sandbox that may be paused is resumed before a command runs, or the command does not run.
    let refused = run(&executor).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::Unavailable);
    assert!(refused.to_string().contains("could not be resumed: by request of the test"), "{refused}");
    run(&executor).await.unwrap();
    assert_eq!(fixture.counts(), (1, 1, 3));
    root.shutdown(soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_during_a_pause_waits_for_it_and_resumes() {
    let fixture = fake_source();
    let gate = Arc::new(Semaphore::new(0));
    fixture.look(|log| log.plans_of_pauses.push_back(PauseOutcome::Wait(Arc::clone(&gate))));
    let (root, executor) = fixture.tree(MINUTE).await;
    run(&executor).await.unwrap();
    advance(MINUTE + Duration::from_secs(1)).await;
    assert_eq!(fixture.counts(), (1, 1, 0));
    // One of them cannot wait so long, and another is not wanted any more.
    let short = CallOptions::until(SystemClock.deadline(Duration::from_secs(1)));
    let error = executor.run(Command::bash("true"), short).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::TimedOut, "{error}");
    let unwanted = options();
    let cancel = unwanted.cancel.clone();
    let cancelling = async { cancel.cancel() };
    let (cancelled, ()) = join(executor.run(Command::bash("true"), unwanted), cancelling).await;
    assert_eq!(cancelled.unwrap_err().kind(), SandboxErrorKind::Cancelled);
    let opening = async {
        tokio::task::yield_now().await;
        gate.add_permits(1);
    };
    let ((first, second), ()) = join(join(run(&executor), run(&executor)), opening).await;
    first.unwrap();
    second.unwrap();
    assert_eq!(fixture.counts(), (1, 1, 1), "the first of them resumes for both");
    assert_eq!(fixture.look(|log| log.wrong.clone()), [""; 0]);
    root.shutdown(soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_cancelled_while_resuming_leaves_the_resume_to_the_next_call() {
    let fixture = fake_source();
    let (root, executor) = fixture.tree(MINUTE).await;
    run(&executor).await.unwrap();
    advance(HOUR).await;
    fixture.look(|log| {
        log.plans_of_resumes.extend([PauseOutcome::Hang, PauseOutcome::Hang, PauseOutcome::Hang])
    });
    let unwanted = options();
    let cancel = unwanted.cancel.clone();
    let cancelling = async {
        tokio::task::yield_now().await;
        cancel.cancel();
    };
    let (cancelled, ()) = join(executor.run(Command::bash("true"), unwanted), cancelling).await;
    assert_eq!(cancelled.unwrap_err().kind(), SandboxErrorKind::Cancelled);
    let short = CallOptions::until(SystemClock.deadline(Duration::from_secs(1)));
    let error = executor.run(Command::bash("true"), short).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::TimedOut, "{error}");
    let mut dropped = executor.run(Command::bash("true"), options());
    assert!(dropped.as_mut().now_or_never().is_none());
    drop(dropped);
    assert_eq!(fixture.counts(), (1, 1, 3));
    // Without further calls, it is paused again.
    advance(HOUR).await;
    assert_eq!(fixture.counts(), (1, 2, 3));
    run(&executor).await.unwrap();
    assert_eq!(fixture.counts(), (1, 2, 4));
    assert_eq!(fixture.look(|log| log.wrong.clone()), [""; 0]);
    root.shutdown(soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_lost_paused_sandbox_gets_a_new_one() {
    let fixture = fake_source();
    let (root, executor) = fixture.tree(MINUTE).await;
    run(&executor).await.unwrap();
    advance(HOUR).await;
    fixture.look(|log| log.plans_of_resumes.push_back(PauseOutcome::Fail(SandboxErrorKind::Lost)));
    run(&executor).await.unwrap();
    assert_eq!(fixture.counts(), (2, 1, 1));
    assert!(executor.take_model_notice().unwrap().contains("by request of the test"));
    root.shutdown(soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_lost_while_pausing_is_replaced() {
    let fixture = fake_source();
    fixture.look(|log| log.plans_of_pauses.push_back(PauseOutcome::Fail(SandboxErrorKind::Lost)));
    let (root, executor) = fixture.tree(MINUTE).await;
    run(&executor).await.unwrap();
    advance(MINUTE + Duration::from_secs(1)).await;
    // It does not tell its end: the next call finds it out.
    assert_eq!(fixture.counts(), (1, 1, 0));
    fixture.look(|log| log.plans_of_resumes.push_back(PauseOutcome::Fail(SandboxErrorKind::Lost)));
    run(&executor).await.unwrap();
    assert_eq!(fixture.counts(), (2, 1, 1));
    root.shutdown(soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shutdown_completes_during_a_pause_or_resume() {
    for in_pause in [true, false] {
        let fixture = fake_source();
        let (root, executor) = fixture.tree(MINUTE).await;
        run(&executor).await.unwrap();
        if in_pause {
            fixture.look(|log| log.plans_of_pauses.push_back(PauseOutcome::Hang));
            advance(MINUTE + Duration::from_secs(1)).await;
            assert_eq!(fixture.counts(), (1, 1, 0));
            root.shutdown(soon()).await.unwrap();
        } else {
            fixture.look(|log| log.plans_of_resumes.push_back(PauseOutcome::Hang));
            advance(HOUR).await;
            let (ended, shut) = join(run(&executor), async {
                tokio::task::yield_now().await;
                root.shutdown(soon()).await
            })
            .await;
            assert!(ended.is_err());
            shut.unwrap();
        }
    }
}

/// All callers meet at a barrier, and continue when the sandbox is paused. No calls run in the meantime, so it is always
/// paused.
async fn wait_until_paused(fixture: &FakeSource, meeting: &Barrier) {
    let deadline = SystemClock.deadline(5 * MINUTE);
    let meet = || tokio::time::timeout(5 * MINUTE, meeting.wait());
    if meet().await.expect("another caller has failed").is_leader() {
        while !fixture.look(|log| log.is_still) {
            assert!(!SystemClock.remaining(deadline).is_zero(), "timed out waiting until it is paused");
            advance(Duration::from_millis(1)).await;
        }
    }
    meet().await.expect("it does not come to stand still");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_call_runs_in_a_paused_sandbox() {
    let fixture = fake_source();
    let (root, executor) = fixture.tree(Duration::from_micros(50)).await;
    let meeting = Arc::new(Barrier::new(4));
    let callers = (0..4_u64).map(|caller| {
        let (executor, fixture, meeting) = (executor.clone(), fixture.clone(), Arc::clone(&meeting));
        async move {
            for round in 0..500_u64 {
                if round % 20 == 0 && round > 0 {
                    wait_until_paused(&fixture, &meeting).await;
                }
                run(&executor).await.unwrap();
                if round % 7 == caller {
                    advance(Duration::from_micros(round % 11 * 60)).await;
                }
                if round % 5 == 0 {
                    // Dropped at any point.
                    let mut dropped = executor.run(Command::bash("true"), options());
                    for _ in 0..round % 4 {
                        if dropped.as_mut().now_or_never().is_some() {
                            break;
                        }
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    });
    #[expect(clippy::disallowed_methods, reason = "callers of a host, in parallel")]
    let callers: Vec<_> = callers.map(tokio::spawn).collect();
    join_all(callers).await.into_iter().for_each(|caller| caller.unwrap());
    assert_eq!(fixture.look(|log| log.wrong.clone()), [""; 0]);
    let (created, pauses, resumes) = fixture.counts();
    assert_eq!(created, 1);
    assert!(pauses > 10 && resumes > 10, "{pauses} pauses, {resumes} resumes");
    root.shutdown(soon()).await.unwrap();
}
