//! How many spares are to be started now, and which are too old: a pure machine. Time is what passed since it began, randomness
//! comes as a value.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::supervision::Backoff;

/// Which spare.
pub(super) type Number = u64;

/// What a pool is to be like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    /// How many are ready when nobody takes any.
    pub(super) size: usize,
    /// How many of its own are started at a time.
    pub(super) at_once: usize,
    /// When a spare is too old.
    pub(super) max_age: Duration,
    pub(super) backoff: Backoff,
}

/// What became of a spare that was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// Somebody has it.
    Taken,
    /// It ended while it waited.
    Died,
}

/// What is to be done now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// So many are to be started. They count as being started from now on.
    pub(super) start: usize,
    /// These are too old. They do not count any more.
    pub(super) retire: Vec<Number>,
    /// When to ask again, if nothing happens before; `None`: only when something does.
    pub(super) wake: Option<Duration>,
}

/// A pool, as far as it must be known to decide.
#[derive(Debug)]
pub(super) struct Machine {
    policy: Policy,
    /// When they became ready.
    ready: BTreeMap<Number, Duration>,
    starting: usize,
    /// Failures of late: starts that failed, and spares that died.
    failures: u32,
    failed_last: Duration,
    /// Nothing is started before.
    not_before: Duration,
    is_possible: bool,
}

impl Machine {
    pub(super) const fn new(policy: Policy) -> Self {
        Self {
            policy,
            ready: BTreeMap::new(),
            starting: 0,
            failures: 0,
            failed_last: Duration::ZERO,
            not_before: Duration::ZERO,
            is_possible: true,
        }
    }

    /// How many are missing, those that are being started among them.
    pub(super) fn missing(&self) -> usize {
        self.policy.size.saturating_sub(self.ready.len())
    }

    /// One that was being started is ready.
    pub(super) fn ready(&mut self, now: Duration, number: Number) {
        self.starting = self.starting.saturating_sub(1);
        self.ready.insert(number, now);
    }

    /// One could not be started.
    pub(super) fn failed(&mut self, now: Duration, roll: u64) {
        self.starting = self.starting.saturating_sub(1);
        self.back_off(now, roll);
    }

    /// One could not be started, and none ever can be.
    pub(super) fn impossible(&mut self) {
        self.starting = self.starting.saturating_sub(1);
        self.is_possible = false;
    }

    /// One that was ready is not there any more. One that was retired is not known, and changes nothing.
    pub(super) fn gone(&mut self, now: Duration, number: Number, how: Gone, roll: u64) {
        if self.ready.remove(&number).is_none() {
            return;
        }
        match how {
            // It was as it should be.
            Gone::Taken => (self.failures, self.not_before) = (0, Duration::ZERO),
            Gone::Died => self.back_off(now, roll),
        }
    }

    /// What fails while it is waited anyway counts as one with what it is waited for: all spares of a pool may end by one cause.
    fn back_off(&mut self, now: Duration, roll: u64) {
        self.forget(now);
        let is_new = now >= self.not_before;
        let before = if is_new { self.failures } else { self.failures.saturating_sub(1) };
        // In part by chance, but never at once: what fails at once would be tried without end.
        let wait = self.policy.backoff.ceiling(before) / 2 + self.policy.backoff.delay(before, roll) / 2;
        self.failures = before.saturating_add(1);
        self.failed_last = now;
        self.not_before = self.not_before.max(now.saturating_add(wait));
    }

    /// What failed long ago says nothing any more.
    fn forget(&mut self, now: Duration) {
        if now.saturating_sub(self.failed_last) >= self.policy.backoff.healthy() {
            self.failures = 0;
        }
    }

    /// What is to be done now.
    pub(super) fn plan(&mut self, now: Duration) -> Plan {
        self.forget(now);
        let max_age = self.policy.max_age;
        let is_old = |born: &Duration| now.saturating_sub(*born) >= max_age;
        let retire: Vec<Number> =
            self.ready.iter().filter(|(_, born)| is_old(born)).map(|(number, _)| *number).collect();
        for number in &retire {
            self.ready.remove(number);
        }
        let next_old = self.ready.values().min().map(|born| born.saturating_add(max_age));
        let missing = self.missing().saturating_sub(self.starting);
        if !self.is_possible || missing == 0 {
            return Plan { start: 0, retire, wake: next_old };
        }
        if now < self.not_before {
            let wake = next_old.map_or(self.not_before, |old| old.min(self.not_before));
            return Plan { start: 0, retire, wake: Some(wake) };
        }
        // After a failure one is tried, and not all that are missing.
        let at_once = if self.failures == 0 { self.policy.at_once.max(1) } else { 1 };
        let start = missing.min(at_once.saturating_sub(self.starting));
        self.starting += start;
        Plan { start, retire, wake: next_old }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn policy(size: usize, at_once: usize) -> Policy {
        let backoff = Backoff::new(SECOND, SECOND * 30, SECOND * 60);
        Policy { size, at_once, max_age: SECOND * 600, backoff }
    }

    fn started(start: usize) -> Plan {
        Plan { start, ..Plan::default() }
    }

    #[test]
    fn a_pool_is_filled_and_refilled_a_few_at_a_time() {
        let mut pool = Machine::new(policy(3, 2));
        assert_eq!(pool.plan(SECOND), started(2));
        assert_eq!(pool.plan(SECOND), started(0));
        pool.ready(SECOND, 1);
        assert_eq!(pool.plan(SECOND).start, 1);
        pool.ready(SECOND, 2);
        pool.ready(SECOND * 2, 3);
        assert_eq!(pool.plan(SECOND * 2), Plan { wake: Some(SECOND * 601), ..Plan::default() });
        pool.gone(SECOND * 3, 1, Gone::Taken, 0);
        assert_eq!(pool.plan(SECOND * 3).start, 1);
    }

    #[test]
    fn what_fails_is_tried_again_one_at_a_time_and_after_longer_waits() {
        let mut pool = Machine::new(policy(4, 4));
        assert_eq!(pool.plan(Duration::ZERO).start, 4);
        for _ in 0..4 {
            pool.failed(Duration::ZERO, u64::MAX);
        }
        let mut now = Duration::ZERO;
        let mut waits = Vec::new();
        for _ in 0..4 {
            let plan = pool.plan(now);
            assert_eq!(plan.start, 0);
            waits.push((plan.wake.unwrap() - now).as_secs_f64().round());
            now = plan.wake.unwrap();
            assert_eq!(pool.plan(now).start, 1, "one is tried");
            pool.failed(now, u64::MAX);
        }
        assert_eq!(waits, [1.0, 2.0, 4.0, 8.0]);
        // One that is good makes up for all of it.
        now = pool.plan(now).wake.unwrap();
        assert_eq!(pool.plan(now).start, 1);
        pool.ready(now, 1);
        assert_eq!(pool.plan(now).start, 1);
        pool.gone(now, 1, Gone::Taken, 0);
        assert_eq!(pool.plan(now).start, 3);
    }

    #[test]
    fn what_dies_while_it_waits_is_replaced_after_a_wait() {
        let mut pool = Machine::new(policy(1, 1));
        pool.plan(Duration::ZERO);
        pool.ready(Duration::ZERO, 1);
        pool.gone(SECOND, 1, Gone::Died, 0);
        let plan = pool.plan(SECOND);
        assert_eq!((plan.start, plan.wake), (0, Some(SECOND + SECOND / 2)));
        assert_eq!(pool.plan(SECOND * 2).start, 1);
    }

    #[test]
    fn what_fails_together_counts_once() {
        let mut pool = Machine::new(policy(8, 8));
        pool.plan(Duration::ZERO);
        (1..=8).for_each(|number| pool.ready(SECOND, number));
        // As when an engine ends, one after the other.
        for number in 1..=8_u64 {
            pool.gone(
                SECOND * 2 + SECOND / 100 * u32::try_from(number).unwrap(),
                number,
                Gone::Died,
                u64::MAX,
            );
        }
        let now = SECOND * 2 + SECOND / 100 * 8;
        let again = pool.plan(now).wake.unwrap();
        let in_seconds = |wait: Duration| wait.as_secs_f64().round();
        assert_eq!(in_seconds(again - now), 1.0, "a first wait, from the last of them on");
        assert_eq!(pool.plan(again).start, 1);
        pool.failed(again, u64::MAX);
        let next = pool.plan(again).wake.unwrap();
        assert_eq!(in_seconds(next - again), 2.0, "what is tried then counts anew");
    }

    #[test]
    fn what_is_too_old_is_retired_and_what_is_impossible_is_left() {
        let mut pool = Machine::new(policy(2, 2));
        pool.plan(Duration::ZERO);
        pool.ready(SECOND, 7);
        pool.ready(SECOND * 9, 8);
        let plan = pool.plan(SECOND * 601);
        assert_eq!(plan, Plan { start: 1, retire: vec![7], wake: Some(SECOND * 609) });
        pool.impossible();
        pool.gone(SECOND * 602, 8, Gone::Taken, 0);
        assert_eq!(pool.plan(SECOND * 602), Plan::default());
    }

    #[derive(Debug, Clone)]
    enum Happens {
        Ready,
        Failed(u64),
        Taken(prop::sample::Index),
        Died(prop::sample::Index, u64),
        Passes(u64),
    }

    fn happens() -> impl Strategy<Value = Happens> {
        prop_oneof![
            3 => Just(Happens::Ready),
            2 => any::<u64>().prop_map(Happens::Failed),
            2 => any::<prop::sample::Index>().prop_map(Happens::Taken),
            2 => (any::<prop::sample::Index>(), any::<u64>()).prop_map(|(which, roll)| Happens::Died(which, roll)),
            2 => (0..200_000_u64).prop_map(Happens::Passes),
        ]
    }

    /// The same cases every time. After a change to the machine, run more of them with another seed.
    fn campaign() -> ProptestConfig {
        ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(256) }
    }

    proptest! {
        #![proptest_config(campaign())]

        /// Against what anybody can count: never too many, never a stop while some are missing, none started twice.
        #[test]
        fn it_has_never_too_many_and_never_gives_up(
            size in 0..6_usize,
            at_once in 0..4_usize,
            events in prop::collection::vec(happens(), 0..80),
        ) {
            let mut pool = Machine::new(policy(size, at_once));
            let (mut now, mut starting, mut next) = (Duration::ZERO, 0_usize, 0);
            let mut ready: BTreeSet<Number> = BTreeSet::new();
            let mut failed = None;
            for event in events {
                match event {
                    Happens::Ready if starting > 0 => {
                        starting -= 1;
                        next += 1;
                        ready.insert(next);
                        pool.ready(now, next);
                    }
                    Happens::Failed(roll) if starting > 0 => {
                        starting -= 1;
                        pool.failed(now, roll);
                        failed = Some(now);
                    }
                    Happens::Taken(which) if !ready.is_empty() => {
                        let number = *ready.iter().nth(which.index(ready.len())).unwrap();
                        ready.remove(&number);
                        pool.gone(now, number, Gone::Taken, 0);
                        failed = None;
                    }
                    Happens::Died(which, roll) if !ready.is_empty() => {
                        let number = *ready.iter().nth(which.index(ready.len())).unwrap();
                        ready.remove(&number);
                        pool.gone(now, number, Gone::Died, roll);
                        failed = Some(now);
                    }
                    Happens::Passes(millis) => now += Duration::from_millis(millis),
                    _ => {}
                }
                let plan = pool.plan(now);
                for number in &plan.retire {
                    prop_assert!(ready.remove(number), "what was ready");
                }
                starting += plan.start;
                prop_assert!(ready.len() + starting <= size);
                prop_assert!(starting <= at_once.max(1) || plan.start == 0);
                // At least half of the first wait.
                if plan.start > 0 && let Some(failed) = failed {
                    prop_assert!(now >= failed + SECOND / 2);
                }
                if ready.len() + starting < size {
                    prop_assert!(starting > 0 || plan.wake.is_some_and(|wake| wake > now), "{plan:?}");
                }
                prop_assert_eq!(pool.plan(now).start, 0, "asked again at once");
            }
            // When all goes well from now on, it fills up.
            for _ in 0..(size * 3 + 3) {
                let plan = pool.plan(now);
                plan.retire.iter().for_each(|number| { ready.remove(number); });
                starting += plan.start;
                while starting > 0 {
                    starting -= 1;
                    next += 1;
                    ready.insert(next);
                    pool.ready(now, next);
                }
                if ready.len() < size && plan.start == 0 && let Some(wake) = plan.wake {
                    now = now.max(wake);
                }
            }
            prop_assert_eq!(ready.len(), size);
        }
    }
}
