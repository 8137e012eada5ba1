//! The actor of one pool. It starts warm items, watches those that wait, and retires them.
//!
//! State: the state machine, and each item in joined work of the actor. After a crash of the actor this work retires
//! the items, and only then the actor counts as gone.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock, lock, with_deadline};
use conjure_sandbox::{SandboxError, SandboxErrorKind};
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::item::{PoolItem, PoolItemFactory};
use super::machine::{ItemEnd, ItemId, Policy, PoolMachine};
use super::pool_shared::PoolShared;
use super::stats::PoolEvent;
use crate::supervision::{Address, Context, Failure, Flow, Job, WaitReasonGuard, Worker};

/// A time longer than any wait. The elapsed time is this minus the remaining time.
const MAX_AGE_OF_POOL: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// How long the ending actor waits for a running start.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(3);

/// The actor of one pool.
pub(super) struct PoolActor<F: PoolItemFactory> {
    shared: Arc<PoolShared<F>>,
    machine: PoolMachine,
    /// A deadline far in the future, set when the actor started.
    epoch: Deadline,
    /// Wakes the actor when the next action is due.
    wake_timer: Option<Job>,
    /// Shows in the tree what the pool waits for.
    waiting: Option<WaitReasonGuard>,
}

/// A message to the actor.
#[derive(Debug)]
pub(super) enum PoolMessage {
    Ready(ItemId),
    Failed(SandboxError),
    ItemEnd(ItemId, ItemEnd),
    /// An action is due.
    Due,
}

impl<F: PoolItemFactory> PoolActor<F> {
    pub(super) fn start(shared: Arc<PoolShared<F>>, context: &Context<PoolMessage>) -> Self {
        let options = &shared.options;
        let policy = Policy {
            size: options.size,
            start_concurrency: options.starts_at_once,
            max_age: options.max_age,
            backoff: options.backoff,
        };
        let epoch = SystemClock.deadline(MAX_AGE_OF_POOL);
        let mut actor =
            Self { shared, machine: PoolMachine::new(policy), epoch, wake_timer: None, waiting: None };
        actor.advance(context);
        actor
    }

    fn now(&self) -> Duration {
        MAX_AGE_OF_POOL.saturating_sub(SystemClock.remaining(self.epoch))
    }

    /// Carries out the actions that are due now.
    fn advance(&mut self, context: &Context<PoolMessage>) {
        let now = self.now();
        let next_actions = self.machine.next_actions(now);
        for _ in 0..next_actions.start {
            let shared = Arc::clone(&self.shared);
            let address = context.address().clone();
            context.spawn_joined(move |shutdown| async move { run_item(&shared, &address, &shutdown).await });
        }
        for id in next_actions.retire {
            if let Some(item) = self.shared.ready_items.remove(id) {
                self.shared.ready_items.metrics.count(PoolEvent::Retired);
                context.spawn_joined(|_| item.retire());
            }
        }
        self.wake_timer = next_actions.wake.map(|wake| {
            let (at, address) = (SystemClock.deadline(wake.saturating_sub(now)), context.address().clone());
            context.spawn_background(async move {
                SystemClock.sleep_until(at).await;
                let _ = address.send_with_deadline(PoolMessage::Due, Deadline::NEVER).await;
            })
        });
        let missing = self.machine.missing();
        // The former reason is removed first.
        self.waiting = None;
        self.waiting = (missing > 0).then(|| {
            let size = self.shared.options.size;
            context.waiting_for(format!("{missing} of {size} warm sandboxes"))
        });
    }

    fn failed(&mut self, error: &SandboxError) {
        let PoolShared { ready_items, name, .. } = &*self.shared;
        ready_items.metrics.count(PoolEvent::Failed);
        *lock(&ready_items.failure) = Some(error.to_string());
        if error.kind() == SandboxErrorKind::Unsupported {
            tracing::warn!(pool = %name, %error, "there are no warm sandboxes");
            self.machine.disable();
        } else {
            tracing::warn!(pool = %name, %error, "a warm sandbox cannot be created; it is tried again");
            self.machine.failed(self.now(), random());
        }
    }
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl<F: PoolItemFactory> Worker for PoolActor<F> {
    type Message = PoolMessage;

    async fn handle(
        &mut self,
        message: PoolMessage,
        context: &Context<PoolMessage>,
    ) -> Result<Flow, Failure> {
        match message {
            PoolMessage::Ready(id) => self.machine.ready(self.now(), id),
            PoolMessage::Failed(error) => self.failed(&error),
            PoolMessage::ItemEnd(id, end) => {
                if end == ItemEnd::Died {
                    self.shared.ready_items.metrics.count(PoolEvent::Died);
                    tracing::warn!(pool = %self.shared.name, "a warm sandbox ended while it waited; it is replaced");
                }
                self.machine.item_ended(self.now(), id, end, random());
            }
            PoolMessage::Due => {}
        }
        self.advance(context);
        Ok(Flow::Continue)
    }
}

/// Creates an item, and watches it until it is claimed, or it or the actor ends.
async fn run_item<F: PoolItemFactory>(
    shared: &PoolShared<F>,
    address: &Address<PoolMessage>,
    shutdown: &CancellationToken,
) {
    let send = async |message| {
        // This fails only if the actor has ended.
        let _ = address.send_with_deadline(message, Deadline::NEVER).await;
    };
    let starting = shared.ready_items.metrics.start();
    let making = AssertUnwindSafe(start_item(shared, shutdown)).catch_unwind();
    let made = making.await.unwrap_or_else(|_| {
        let message = "creating a warm sandbox panicked";
        Some(Err(SandboxError::new(SandboxErrorKind::Unavailable, message)))
    });
    let Some(made) = made else { return };
    drop(starting);
    let item = match made {
        Ok(item) if shutdown.is_cancelled() => return item.retire().await,
        Ok(item) => item,
        Err(error) => return send(PoolMessage::Failed(error)).await,
    };
    shared.ready_items.metrics.count(PoolEvent::Ready);
    let ended = item.ended();
    let (id, taken) = shared.ready_items.put(item);
    send(PoolMessage::Ready(id)).await;
    let end = tokio::select! {
        biased;
        () = taken.cancelled() => Some(ItemEnd::Claimed),
        () = shutdown.cancelled() => None,
        _ = ended => Some(ItemEnd::Died),
    };
    let end = match (end, shared.ready_items.remove(id)) {
        // A claim or a retirement removed the item first.
        (Some(_), None) => ItemEnd::Claimed,
        (None, None) => return,
        (end, Some(item)) => {
            item.retire().await;
            match end {
                Some(end) => end,
                None => return,
            }
        }
    };
    send(PoolMessage::ItemEnd(id, end)).await;
}

/// Creates an item after admission; `None` when the actor has ended.
async fn start_item<F: PoolItemFactory>(
    shared: &PoolShared<F>,
    shutdown: &CancellationToken,
) -> Option<Result<F::Item, SandboxError>> {
    // Refills wait until no tenant waits. This wait has no deadline, and ends with the actor.
    let _permit = shutdown.run_until_cancelled(shared.start_gate.admit_background()).await?;
    let deadline = SystemClock.deadline(shared.options.start_timeout);
    let making = shared.source.create(deadline);
    tokio::pin!(making);
    if let Some(made) = shutdown.run_until_cancelled(&mut making).await {
        return Some(made);
    }
    // If the start is dropped, the incomplete item is removed some time later. If it ends in time, the caller retires the item.
    with_deadline(&SystemClock, SystemClock.deadline(ABANDON_TIMEOUT), making).await.ok()
}
