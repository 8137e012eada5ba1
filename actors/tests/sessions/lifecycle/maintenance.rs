//! Maintenance tasks: they run on schedule. A task may fail, panic or hang, and a caller may ask for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use conjure_actors::maintenance::{MaintenanceTask, TaskError};
use conjure_actors::runtime::{SessionRuntime, TreeOptions};
use conjure_actors::supervision::Failure;
use conjure_base::{Clock, Deadline, SystemClock};
use conjure_journal::LeaseOwner;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::scenario::Scenario;
use crate::support::{SECOND, memory, soon};

const HOUR: Duration = Duration::from_secs(3_600);

/// The outcome of a run.
type Run = fn(u64) -> BoxFuture<'static, Result<u64, Failure>>;

struct CountingTask {
    name: &'static str,
    runs: AtomicU64,
    run: Run,
}

impl CountingTask {
    fn new(name: &'static str, run: Run) -> Arc<Self> {
        Arc::new(Self { name, runs: AtomicU64::new(0), run })
    }

    fn runs(&self) -> u64 {
        self.runs.load(Ordering::SeqCst)
    }
}

impl MaintenanceTask for CountingTask {
    fn name(&self) -> &'static str {
        self.name
    }

    fn interval(&self) -> Duration {
        HOUR
    }

    fn timeout(&self) -> Duration {
        SECOND * 60
    }

    fn run(&self, _: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        (self.run)(self.runs.fetch_add(1, Ordering::SeqCst))
    }
}

async fn runtime(tasks: Vec<Arc<dyn MaintenanceTask>>) -> SessionRuntime {
    let owner = LeaseOwner::new("host").unwrap();
    let mut options = TreeOptions::new(memory(), Arc::new(Scenario::default()), owner);
    options.maintenance_tasks = tasks;
    SessionRuntime::spawn(options).await.unwrap()
}

async fn pass(time: Duration) {
    SystemClock.sleep_until(SystemClock.deadline(time)).await;
}

#[tokio::test(start_paused = true)]
async fn maintenance_tasks_run_on_schedule_and_failed_ones_are_reported_and_retried() {
    let well = CountingTask::new("well", |_| Box::pin(async { Ok(3) }));
    let badly = CountingTask::new("badly", |run| {
        Box::pin(async move { if run < 2 { Err(format!("no luck in run {run}").into()) } else { Ok(0) } })
    });
    let panicking = CountingTask::new("panicking", |_| Box::pin(async { panic!("this is intended") }));
    let hanging = CountingTask::new("hanging", |_| Box::pin(std::future::pending()));
    let all = [&well, &badly, &panicking, &hanging];
    let runtime = runtime(all.map(|task| Arc::clone(task) as Arc<dyn MaintenanceTask>).to_vec()).await;
    assert_eq!(all.map(|task| task.runs()), [0; 4], "a start has done it all");
    pass(HOUR * 9 / 8 + SECOND * 70).await;
    assert_eq!(all.map(|task| task.runs()), [1; 4]);
    let reported = || {
        let tasks = runtime.maintenance().tasks().into_iter().filter(|task| task.name != "idle-tenants");
        tasks.map(|task| (task.name, task.runs, task.failures, task.last.unwrap().outcome))
    };
    let expected = [
        ("well", 1, 0, Ok(3)),
        ("badly", 0, 1, Err("no luck in run 0".to_owned())),
        ("panicking", 0, 1, Err("it panicked".to_owned())),
        ("hanging", 0, 1, Err("it did not finish within 60s".to_owned())),
    ];
    assert_eq!(reported().collect::<Vec<_>>(), expected);
    pass(HOUR * 9 / 8 * 2 + SECOND * 140).await;
    assert_eq!(reported().nth(1).unwrap(), ("badly", 1, 0, Ok(0)));
    assert!(all.iter().all(|task| task.runs() == 3), "{:?}", all.map(|task| task.runs()));
    assert!(runtime.health().is_good());
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_requested_task_runs_from_its_beginning_and_never_concurrently() {
    static DOOR: Semaphore = Semaphore::const_new(0);
    static INSIDE: AtomicU64 = AtomicU64::new(0);
    let slow = CountingTask::new("slow", |run| {
        Box::pin(async move {
            assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0);
            DOOR.acquire().await.unwrap().forget();
            INSIDE.fetch_sub(1, Ordering::SeqCst);
            Ok(run)
        })
    });
    let runtime = runtime(vec![Arc::clone(&slow) as Arc<dyn MaintenanceTask>]).await;
    let maintenance = runtime.maintenance();
    let within = || SystemClock.deadline(SECOND * 50);
    let first = maintenance.run("slow", within());
    tokio::pin!(first);
    assert!(futures_util::poll!(&mut first).is_pending());
    while slow.runs() == 0 {
        tokio::task::yield_now().await;
    }
    let (second, third) = (maintenance.run("slow", within()), maintenance.run("slow", within()));
    tokio::pin!(second, third);
    assert!(futures_util::poll!(&mut second).is_pending() && futures_util::poll!(&mut third).is_pending());
    DOOR.add_permits(2);
    assert_eq!(first.await, Ok(0));
    // A run that started before the request may have missed its reason.
    assert_eq!((second.await, third.await), (Ok(1), Ok(1)));
    assert_eq!(slow.runs(), 2);

    let unknown = maintenance.run("tidy", within()).await.unwrap_err();
    assert_eq!(unknown.to_string(), "there is no maintenance task `tidy`; there are: slow, idle-tenants");
    let error = maintenance.run("slow", SystemClock.deadline(SECOND)).await.unwrap_err();
    assert!(matches!(error, TaskError::Call(_)), "{error}");
    runtime.shutdown(soon()).await.unwrap();
    assert!(matches!(maintenance.run("slow", within()).await, Err(TaskError::Call(_))));
}
