//! The actor: it waits until a chore is due, and has it done beside itself.
//!
//! State: what is under way, and who waits for it. In a crash whoever waits learns that it is lost.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock};
use tokio::sync::oneshot;

use super::chore::Chore;
use super::handle::Board;
use crate::metrics::names;
use crate::supervision::{Alarm, Context, Failure, Flow, Reply, Worker};

type Outcome = Result<u64, String>;

/// What it understands.
pub(super) enum JanitorMessage {
    /// It may be time for the chore at this place.
    Due { place: usize },
    /// Somebody wants it done now.
    Run { place: usize, reply: Reply<Outcome> },
    /// It is over.
    Over { place: usize, outcome: Outcome },
}

pub(super) struct JanitorActor {
    chores: Arc<[Arc<dyn Chore>]>,
    board: Arc<Board>,
    rounds: Vec<Round>,
    chance: RandomState,
}

/// Where a chore is.
#[derive(Default)]
struct Round {
    state: State,
    /// They wait for the run that is under way.
    waiting: Vec<Reply<Outcome>>,
    /// They came later, and wait for the next one.
    queued: Vec<Reply<Outcome>>,
    runs: u64,
}

#[derive(Default)]
enum State {
    #[default]
    Underway,
    Resting(#[expect(dead_code, reason = "it rings for as long as it is there")] Alarm),
}

impl JanitorActor {
    pub(super) fn start(
        chores: Arc<[Arc<dyn Chore>]>,
        board: Arc<Board>,
        context: &Context<JanitorMessage>,
    ) -> Self {
        let rounds = chores.iter().map(|_| Round::default()).collect();
        let mut actor = Self { chores, board, rounds, chance: RandomState::new() };
        (0..actor.rounds.len()).for_each(|place| actor.rest(place, context));
        actor
    }

    /// Lets it rest for its time.
    fn rest(&mut self, place: usize, context: &Context<JanitorMessage>) {
        let round = &mut self.rounds[place];
        let every = self.chores[place].every();
        let due = SystemClock.deadline(every + part(every / 8, self.chance.hash_one((place, round.runs))));
        let address = context.address().clone();
        let ring = move || {
            // Each chore has one message on its way at most.
            let _ = address.send(JanitorMessage::Due { place });
        };
        round.state = State::Resting(Alarm::set(due, ring));
    }

    fn begin(&mut self, place: usize, context: &Context<JanitorMessage>) {
        let round = &mut self.rounds[place];
        round.state = State::Underway;
        round.runs += 1;
        let chore = Arc::clone(&self.chores[place]);
        let (tell, told) = oneshot::channel();
        context.spawn(async move { drop(tell.send(done(&*chore).await)) }).detach();
        let address = context.address().clone();
        let telling = async move {
            // Nothing is told when it panicked.
            let outcome = told.await.unwrap_or_else(|_| Err("it panicked".to_owned()));
            let _ = address.send_by(JanitorMessage::Over { place, outcome }, Deadline::NEVER).await;
        };
        context.spawn(telling).detach();
    }

    fn over(&mut self, place: usize, outcome: &Outcome, context: &Context<JanitorMessage>) {
        let chore = self.chores[place].name();
        match outcome {
            Ok(0) => {}
            Ok(count) => tracing::info!(chore, count, "a chore was done"),
            Err(reason) => tracing::warn!(chore, reason, "a chore was not done"),
        }
        let how = if outcome.is_ok() { "ok" } else { "failed" };
        metrics::counter!(names::CHORES, "chore" => chore, "outcome" => how).increment(1);
        self.board.note(place, outcome.clone());
        let round = &mut self.rounds[place];
        for reply in round.waiting.drain(..) {
            reply.send(outcome.clone());
        }
        round.waiting = std::mem::take(&mut round.queued);
        if round.waiting.is_empty() {
            self.rest(place, context);
        } else {
            self.begin(place, context);
        }
    }
}

/// The part of this time that a roll says.
fn part(of: Duration, roll: u64) -> Duration {
    let nanos = (of.as_nanos() * u128::from(roll)) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Does it, within its time.
async fn done(chore: &dyn Chore) -> Outcome {
    let within = chore.within();
    let deadline = SystemClock.deadline(within);
    tokio::select! {
        biased;
        outcome = chore.run(deadline) => outcome.map_err(|error| error.to_string()),
        () = SystemClock.sleep_until(deadline) => Err(format!("it was not over after {within:?}")),
    }
}

impl Worker for JanitorActor {
    type Message = JanitorMessage;

    async fn handle(
        &mut self,
        message: JanitorMessage,
        context: &Context<JanitorMessage>,
    ) -> Result<Flow, Failure> {
        match message {
            JanitorMessage::Due { place } => {
                if matches!(self.rounds[place].state, State::Resting(_)) {
                    self.begin(place, context);
                }
            }
            JanitorMessage::Run { place, reply } => match self.rounds[place].state {
                State::Resting(_) => {
                    self.rounds[place].waiting.push(reply);
                    self.begin(place, context);
                }
                State::Underway => self.rounds[place].queued.push(reply),
            },
            JanitorMessage::Over { place, outcome } => self.over(place, &outcome, context),
        }
        Ok(Flow::Continue)
    }
}
