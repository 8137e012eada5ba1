use std::collections::HashMap;

use conjure_base::{SessionId, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::super::budget::{BudgetResource, Period};
use super::super::counter_names::counter_name;
use super::*;

const DAY: u64 = 24 * 60 * 60 * 1_000;

/// What happens to a session; what does not fit its state is passed over.
#[derive(Debug, Clone)]
enum Op {
    /// It begins to read what was spent.
    Read,
    /// It has read that, and asks for so much.
    Ask(u64),
    /// Its call is answered, and used so much.
    Answer(u64),
    /// The answer is in the journal.
    Commit,
    /// The session hears of that.
    Hear,
    /// Its call comes to nothing, or the session ends.
    Fail,
    /// The clock shows this day from now on.
    Jump(u64),
}

#[derive(Debug, Clone, Default)]
enum State {
    #[default]
    Idle,
    Reading(ReadMark, Vec<u64>, Timestamp),
    Calling(u64, Timestamp),
    Answered(u64, Timestamp),
    Committed(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Read),
        4 => (0..60_u64).prop_map(Op::Ask),
        4 => (0..70_u64).prop_map(Op::Answer),
        3 => Just(Op::Commit),
        3 => Just(Op::Hear),
        1 => Just(Op::Fail),
        1 => (0..40_u64).prop_map(Op::Jump),
    ]
}

fn amount(tokens: u64) -> Spend {
    Spend { tokens, micros: 0 }
}

/// The machine in a simulation in which what is read is old by the time it is used.
struct Simulation {
    budget: BudgetState,
    allowances: Vec<Allowance>,
    journal: HashMap<String, u64>,
    sessions: HashMap<SessionId, State>,
    now: Timestamp,
    /// What answers used beyond what was reserved for them.
    overrun: u64,
}

impl Simulation {
    fn name(allowance: &Allowance, at: Timestamp) -> (String, u64) {
        let (resource, period, limit) = allowance.parts();
        (counter_name(resource, period, at), limit)
    }

    fn spent(&self, at: Timestamp) -> Vec<u64> {
        let count = |allowance| self.journal.get(&Self::name(allowance, at).0).copied().unwrap_or(0);
        self.allowances.iter().map(count).collect()
    }

    /// What calls of others will come to that is not in the journal.
    fn outstanding(&self, but: SessionId) -> u64 {
        let others = self.sessions.iter().filter(|(session, _)| **session != but);
        others
            .map(|(_, state)| match state {
                State::Calling(amount, _) | State::Answered(amount, _) => *amount,
                _ => 0,
            })
            .sum()
    }

    fn step(&mut self, session: SessionId, op: Op) {
        let state = self.sessions.remove(&session).unwrap_or_default();
        let state = match (state, op) {
            (state, Op::Jump(day)) => {
                self.now = Timestamp::from_millis(day * DAY + 7);
                state
            }
            (State::Idle, Op::Read) => State::Reading(self.budget.mark(), self.spent(self.now), self.now),
            (State::Reading(mark, spent, at), Op::Ask(tokens)) => {
                let fits = self.budget.fits(session, amount(tokens), &self.allowances, &spent, mark);
                self.judge(session, tokens, at, &spent, fits)
            }
            (State::Calling(reserved, at), Op::Answer(used)) => {
                self.overrun += used.saturating_sub(reserved);
                self.budget.settle(session, amount(used));
                State::Answered(used, at)
            }
            (State::Answered(used, at), Op::Commit) => {
                assert_eq!(self.budget.at(session), Some(at), "it is charged to where it fitted");
                for period in [Period::Total, Period::Day, Period::Month] {
                    *self.journal.entry(counter_name(BudgetResource::Tokens, period, at)).or_default() +=
                        used;
                }
                State::Committed(used)
            }
            (State::Committed(used), Op::Hear) => {
                self.budget.charge(session, amount(used));
                State::Idle
            }
            // A process that dies between the commit and the report leaves no report.
            (State::Calling(..) | State::Answered(..) | State::Committed(..), Op::Fail) => {
                assert!(self.budget.release(session));
                State::Idle
            }
            (state, _) => state,
        };
        self.sessions.insert(session, state);
        for (name, count) in &self.journal {
            let of = |allowance: &&Allowance| allowance.parts().1;
            for allowance in self.allowances.iter().filter(|allowance| match of(allowance) {
                Period::Total => name == "tokens",
                Period::Day => name.len() == "tokens 1970-01-01".len(),
                _ => name.len() == "tokens 1970-01".len(),
            }) {
                let limit = allowance.parts().2;
                assert!(*count <= limit + self.overrun, "{name}: {count} of {limit}, and {}", self.overrun);
            }
        }
    }

    fn judge(
        &mut self,
        session: SessionId,
        tokens: u64,
        at: Timestamp,
        read: &[u64],
        fits: Result<(), Shortfall>,
    ) -> State {
        let others = self.outstanding(session);
        let all: Vec<(u64, u64)> = self
            .spent(at)
            .into_iter()
            .zip(self.allowances.iter().map(|allowance| allowance.parts().2))
            .collect();
        match fits {
            Ok(()) => {
                for (spent, limit) in all {
                    assert!(spent + others + tokens <= limit, "it did not fit");
                }
                self.budget.reserve(session, amount(tokens), at);
                State::Calling(tokens, at)
            }
            Err(shortfall) => {
                let spent_out =
                    read.iter().zip(&all).any(|(read, (_, limit))| read + tokens > *limit || *limit == 0);
                match shortfall.reason {
                    ShortfallReason::Spent => assert!(spent_out, "it was refused for no reason"),
                    // Reading again shows the true amount.
                    ShortfallReason::ChangedWhileReading => {
                        assert_ne!(self.budget.mark(), BudgetState::default().mark())
                    }
                    ShortfallReason::ReservedByOthers => assert!(self.budget.reserved().tokens > 0),
                }
                State::Idle
            }
        }
    }
}

/// The same cases every time. After a change to the budget, run more of them with another seed.
fn campaign() -> ProptestConfig {
    ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(512) }
}

proptest! {
    #![proptest_config(campaign())]

    /// Whatever happens, and whatever the clock shows, no more is spent in any period than it allows and calls come to beyond
    /// what was reserved for them.
    #[test]
    fn no_period_is_spent_twice(
        ops in prop::collection::vec((0..5_u128, op()), 1..200),
        [total, month, day] in [0..600_u64, 0..300_u64, 0..150_u64],
    ) {
        let allowances = vec![
            Allowance::Tokens { period: Period::Total, limit: total },
            Allowance::Tokens { period: Period::Month, limit: month },
            Allowance::Tokens { period: Period::Day, limit: day },
        ];
        let mut simulation = Simulation {
            budget: BudgetState::default(),
            allowances,
            journal: HashMap::new(),
            sessions: HashMap::new(),
            now: Timestamp::from_millis(0),
            overrun: 0,
        };
        for (session, op) in ops {
            simulation.step(SessionId::from_bits(session), op);
        }
    }
}

#[test]
fn what_others_reserved_is_told_from_what_is_spent() {
    let (one, two) = (SessionId::from_bits(1), SessionId::from_bits(2));
    let allowances = [Allowance::Tokens { period: Period::Total, limit: 100 }];
    let mut budget = BudgetState::default();
    let mark = budget.mark();
    budget.fits(one, amount(60), &allowances, &[0], mark).unwrap();
    budget.reserve(one, amount(60), Timestamp::from_millis(0));
    let reason = |budget: &BudgetState, spent, mark| {
        budget.fits(two, amount(60), &allowances, &[spent], mark).map_err(|shortfall| shortfall.reason)
    };
    assert_eq!(reason(&budget, 0, mark), Err(ShortfallReason::ReservedByOthers));
    assert_eq!(budget.fits(one, amount(60), &allowances, &[0], mark), Ok(()), "its own is replaced");
    budget.charge(one, amount(30));
    // Read before it was charged, or after it: nobody knows.
    assert_eq!(reason(&budget, 30, mark), Err(ShortfallReason::ChangedWhileReading));
    assert_eq!(reason(&budget, 30, budget.mark()), Ok(()));
    assert_eq!(reason(&budget, 41, budget.mark()), Err(ShortfallReason::Spent));
    let none = [Allowance::Tokens { period: Period::Total, limit: 0 }];
    let shortfall = budget.fits(two, amount(0), &none, &[0], budget.mark()).unwrap_err();
    assert_eq!(shortfall.reason, ShortfallReason::Spent, "none is none, also of nothing");
}
