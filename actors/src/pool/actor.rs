//! The actor of one pool: has spares started, looks after those that wait, and retires them.
//!
//! State: the machine, and each spare in lasting work of the actor. In a crash of the actor that work retires the spares, and
//! only then it counts as gone.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock};
use conjure_sandbox::{SandboxError, SandboxErrorKind};
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::machine::{Gone, Machine, Number, Policy};
use super::meter::Event;
use super::spec::{Makings, Spare, SpareSource};
use crate::supervision::{Address, Context, Failure, Flow, Job, Waiting, Worker};

/// Further than any wait: what was left of it tells how much time has passed.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// How long a start that is under way is waited for when nobody wants its spare any more.
const PATIENCE: Duration = Duration::from_secs(3);

/// The actor of one pool.
pub(super) struct PoolActor<M: SpareSource> {
    makings: Arc<Makings<M>>,
    machine: Machine,
    /// Far from when it began.
    epoch: Deadline,
    /// Asks for the next plan.
    alarm: Option<Job>,
    /// What the tree says of it.
    waiting: Option<Waiting>,
}

/// What it is told.
#[derive(Debug)]
pub(super) enum PoolMessage {
    Ready(Number),
    Failed(SandboxError),
    Gone(Number, Gone),
    /// It is time for a plan.
    Due,
}

impl<M: SpareSource> PoolActor<M> {
    pub(super) fn start(makings: Arc<Makings<M>>, context: &Context<PoolMessage>) -> Self {
        let options = &makings.options;
        let policy = Policy {
            size: options.size,
            at_once: options.starts_at_once,
            max_age: options.max_age,
            backoff: options.backoff,
        };
        let epoch = SystemClock.deadline(FAR);
        let mut actor = Self { makings, machine: Machine::new(policy), epoch, alarm: None, waiting: None };
        actor.carry_on(context);
        actor
    }

    fn now(&self) -> Duration {
        FAR.saturating_sub(SystemClock.remaining(self.epoch))
    }

    /// Does what is to be done now.
    fn carry_on(&mut self, context: &Context<PoolMessage>) {
        let now = self.now();
        let plan = self.machine.plan(now);
        for _ in 0..plan.start {
            let makings = Arc::clone(&self.makings);
            let address = context.address().clone();
            context.spawn_lasting(move |over| async move { make_and_keep(&makings, &address, &over).await });
        }
        for number in plan.retire {
            if let Some(spare) = self.makings.shelf.remove(number) {
                self.makings.shelf.meter.count(Event::Retired);
                context.spawn_lasting(|_| spare.retire());
            }
        }
        self.alarm = plan.wake.map(|wake| {
            let (at, address) = (SystemClock.deadline(wake.saturating_sub(now)), context.address().clone());
            context.spawn_upkeep(async move {
                SystemClock.sleep_until(at).await;
                let _ = address.send_by(PoolMessage::Due, Deadline::NEVER).await;
            })
        });
        let missing = self.machine.missing();
        // What it said before goes first.
        self.waiting = None;
        self.waiting = (missing > 0).then(|| {
            let size = self.makings.options.size;
            context.waits_for(format!("{missing} of {size} spares"))
        });
    }

    fn failed(&mut self, error: &SandboxError) {
        let Makings { shelf, name, .. } = &*self.makings;
        shelf.meter.count(Event::Failed);
        *shelf.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        if error.kind() == SandboxErrorKind::Unsupported {
            tracing::warn!(pool = %name, %error, "there are no spares");
            self.machine.impossible();
        } else {
            tracing::warn!(pool = %name, %error, "a spare cannot be made; it is tried again");
            self.machine.failed(self.now(), roll());
        }
    }
}

fn roll() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl<M: SpareSource> Worker for PoolActor<M> {
    type Message = PoolMessage;

    async fn handle(
        &mut self,
        message: PoolMessage,
        context: &Context<PoolMessage>,
    ) -> Result<Flow, Failure> {
        match message {
            PoolMessage::Ready(number) => self.machine.ready(self.now(), number),
            PoolMessage::Failed(error) => self.failed(&error),
            PoolMessage::Gone(number, how) => {
                if how == Gone::Died {
                    self.makings.shelf.meter.count(Event::Died);
                    tracing::warn!(pool = %self.makings.name, "a spare has ended while it waited; it is replaced");
                }
                self.machine.gone(self.now(), number, how, roll());
            }
            PoolMessage::Due => {}
        }
        self.carry_on(context);
        Ok(Flow::Continue)
    }
}

/// Makes a spare, and looks after it until somebody has it, or it or the actor ends.
async fn make_and_keep<M: SpareSource>(
    makings: &Makings<M>,
    address: &Address<PoolMessage>,
    over: &CancellationToken,
) {
    let tell = async |message| {
        // The actor takes what it is told, or is over.
        let _ = address.send_by(message, Deadline::NEVER).await;
    };
    let starting = makings.shelf.meter.starts();
    let making = AssertUnwindSafe(make(makings, over)).catch_unwind();
    let made = making.await.unwrap_or_else(|_| {
        let message = "the making of a spare panicked";
        Some(Err(SandboxError::new(SandboxErrorKind::Unavailable, message)))
    });
    let Some(made) = made else { return };
    drop(starting);
    let spare = match made {
        Ok(spare) if over.is_cancelled() => return spare.retire().await,
        Ok(spare) => spare,
        Err(error) => return tell(PoolMessage::Failed(error)).await,
    };
    makings.shelf.meter.count(Event::Ready);
    let ended = spare.ended();
    let (number, left) = makings.shelf.put(spare);
    tell(PoolMessage::Ready(number)).await;
    let how = tokio::select! {
        biased;
        () = left.cancelled() => Some(Gone::Taken),
        () = over.cancelled() => None,
        _ = ended => Some(Gone::Died),
    };
    let how = match (how, makings.shelf.remove(number)) {
        // Somebody was faster.
        (Some(_), None) => Gone::Taken,
        (None, None) => return,
        (how, Some(spare)) => {
            spare.retire().await;
            match how {
                Some(how) => how,
                None => return,
            }
        }
    };
    tell(PoolMessage::Gone(number, how)).await;
}

/// Makes a spare when it is its turn; `None` when the actor is over.
async fn make<M: SpareSource>(
    makings: &Makings<M>,
    over: &CancellationToken,
) -> Option<Result<M::Spare, SandboxError>> {
    // When no tenant waits: whoever needs one now is first. It is waited for as long as there is an actor.
    let _permit = over.run_until_cancelled(makings.starts.admit_house()).await?;
    let deadline = SystemClock.deadline(makings.options.start_within);
    let making = makings.source.make(deadline);
    tokio::pin!(making);
    if let Some(made) = over.run_until_cancelled(&mut making).await {
        return Some(made);
    }
    // What is half made goes some time after its start is dropped; what is made is gone when it was retired.
    tokio::select! {
        biased;
        made = making => Some(made),
        () = SystemClock.sleep_until(SystemClock.deadline(PATIENCE)) => None,
    }
}
