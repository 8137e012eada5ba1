//! A pool in its own supervision tree, with items that report their state.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_actors::pool::{Pool, PoolItem, PoolItemFactory, PoolOptions};
use conjure_actors::supervision::{Backoff, Child, ChildId, Root, Strategy, SupervisorSpec};
use conjure_base::{Clock, Deadline, SystemClock};
use conjure_sandbox::{SandboxError, SandboxErrorKind};
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The outcome of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Fails(SandboxErrorKind),
    Hangs,
}

/// The current state of the fakes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct PoolState {
    /// The requested starts, by their time since the beginning.
    pub(crate) calls: Vec<Duration>,
    /// How many are being started.
    pub(crate) starting: usize,
    pub(crate) most_starting: usize,
    /// By their numbers; cancelled when it is to end.
    pub(crate) alive: BTreeMap<usize, ()>,
    pub(crate) retired: Vec<usize>,
}

#[derive(Debug, Clone)]
pub(crate) struct FakeFactory {
    seen: watch::Sender<PoolState>,
    behave: Arc<Mutex<VecDeque<Start>>>,
    ends: Arc<Mutex<BTreeMap<usize, CancellationToken>>>,
    epoch: Deadline,
}

#[derive(Debug)]
pub(crate) struct FakeItem {
    pub(crate) number: usize,
    end: CancellationToken,
    factory: FakeFactory,
}

const FAR: Duration = Duration::from_secs(1_000_000);

pub(crate) struct StartGuard<'a>(&'a watch::Sender<PoolState>);

impl<'a> StartGuard<'a> {
    pub(crate) fn begin(seen: &'a watch::Sender<PoolState>) -> Self {
        seen.send_modify(|seen| {
            seen.starting += 1;
            seen.most_starting = seen.most_starting.max(seen.starting);
        });
        Self(seen)
    }
}

impl Drop for StartGuard<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|seen| seen.starting -= 1);
    }
}

impl FakeFactory {
    pub(crate) fn new() -> Self {
        Self {
            seen: watch::Sender::default(),
            behave: Arc::default(),
            ends: Arc::default(),
            epoch: SystemClock.deadline(FAR),
        }
    }

    pub(crate) fn next_starts(&self, starts: impl IntoIterator<Item = Start>) {
        self.behave.lock().unwrap().extend(starts);
    }

    pub(crate) fn seen(&self) -> PoolState {
        self.seen.borrow().clone()
    }

    pub(crate) fn starting(&self) -> StartGuard<'_> {
        StartGuard::begin(&self.seen)
    }

    pub(crate) async fn until(&self, is_so: impl FnMut(&PoolState) -> bool) {
        self.seen.subscribe().wait_for(is_so).await.unwrap();
    }

    /// It ends by itself.
    pub(crate) fn kill(&self, number: usize) {
        self.ends.lock().unwrap()[&number].cancel();
    }
}

impl PoolItemFactory for FakeFactory {
    type Item = FakeItem;

    fn create(&self, _: Deadline) -> BoxFuture<'_, Result<FakeItem, SandboxError>> {
        Box::pin(async {
            let _starting = self.starting();
            let passed = FAR - SystemClock.remaining(self.epoch);
            self.seen.send_modify(|output| output.calls.push(passed));
            let behaviour = self.behave.lock().unwrap().pop_front();
            match behaviour {
                Some(Start::Fails(kind)) => return Err(SandboxError::new(kind, "as it was told")),
                Some(Start::Hangs) => std::future::pending().await,
                // As a real one, it takes its time.
                None => SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(10))).await,
            }
            let (end, mut number) = (CancellationToken::new(), 0);
            self.seen.send_modify(|output| {
                number = output.alive.len() + output.retired.len();
                output.alive.insert(number, ());
            });
            self.ends.lock().unwrap().insert(number, end.clone());
            Ok(FakeItem { number, end, factory: self.clone() })
        })
    }
}

impl PoolItem for FakeItem {
    fn is_live(&self) -> bool {
        !self.end.is_cancelled()
    }

    fn ended(&self) -> BoxFuture<'static, SandboxError> {
        let end = self.end.clone();
        Box::pin(async move {
            end.cancelled().await;
            SandboxError::new(SandboxErrorKind::Lost, "it was told to end")
        })
    }

    async fn retire(self) {
        // Nothing is left even if the removal is not awaited.
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(3))).await;
        self.factory.seen.send_modify(|seen| {
            seen.alive.remove(&self.number);
            seen.retired.push(self.number);
        });
    }
}

pub(crate) struct Fixture {
    pub(crate) factory: FakeFactory,
    pub(crate) pool: Pool<FakeFactory>,
    pub(crate) actor: Child,
    root: Root,
}

pub(crate) fn soon() -> Deadline {
    SystemClock.deadline(Duration::from_secs(300))
}

impl Fixture {
    pub(crate) async fn of_size(size: usize) -> Self {
        Self::with(size, FakeFactory::new(), |_| {}).await
    }

    pub(crate) async fn with(
        size: usize,
        factory: FakeFactory,
        change: impl FnOnce(&mut PoolOptions),
    ) -> Self {
        let mut options = PoolOptions::with_size(size);
        options.starts_at_once = 2;
        options.max_age = Duration::from_secs(3_600 * 24);
        options.backoff =
            Backoff::new(Duration::from_secs(1), Duration::from_secs(60), Duration::from_secs(120));
        change(&mut options);
        let name = ChildId::new("pool").unwrap();
        let (spec, pool) = Pool::spec(name, factory.clone(), options);
        let (pools, supervisor) = SupervisorSpec::dynamic(ChildId::new("pools").unwrap()).build();
        let root = SupervisorSpec::ordered(ChildId::new("root").unwrap(), Strategy::OneForOne);
        let (root, _) = root.child(pools).unwrap().build();
        let root = Root::spawn(root, soon()).await.unwrap();
        let actor = supervisor.start_child(spec, soon()).await.unwrap();
        Self { factory, pool, actor, root }
    }

    /// The actor's line in the supervision tree.
    pub(crate) fn shown(&self) -> String {
        format!("{:?}", self.root.tree())
    }

    pub(crate) async fn end(self) -> PoolState {
        self.root.shutdown(soon()).await.unwrap();
        self.factory.seen()
    }
}

/// The number of the claimed item.
pub(crate) async fn claim(pool: &Pool<FakeFactory>) -> Option<usize> {
    pool.claim(|made| async move {
        let number = made.number;
        // The one who has it ends it.
        drop(made);
        Ok(number)
    })
    .await
}
