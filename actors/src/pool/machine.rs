//! Decides how many items to start now and which are too old, as a pure state machine. Time is the duration since the
//! start; randomness is passed as a value.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::supervision::Backoff;

/// The id of an item.
pub(super) type ItemId = u64;

/// The settings of a pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    /// How many items the pool keeps ready.
    pub(super) size: usize,
    /// How many of its items are started at a time.
    pub(super) start_concurrency: usize,
    /// The age at which an item is too old.
    pub(super) max_age: Duration,
    pub(super) backoff: Backoff,
}

/// How a ready item ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemEnd {
    /// It was claimed.
    Claimed,
    /// It ended while it waited.
    Died,
}

/// The actions that are due now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PoolActions {
    /// How many items to start. They count as starting from now on.
    pub(super) start: usize,
    /// The items that are too old. They do not count any more.
    pub(super) retire: Vec<ItemId>,
    /// When to ask again if nothing happens before. `None`: only after a change.
    pub(super) wake: Option<Duration>,
}

/// The state on which decisions are based.
#[derive(Debug)]
pub(super) struct PoolMachine {
    policy: Policy,
    /// The ready items, and when they became ready.
    ready: BTreeMap<ItemId, Duration>,
    starting: usize,
    /// Recent failures: starts that failed, and items that died.
    failures: u32,
    failed_last: Duration,
    /// Nothing is started before this time.
    not_before: Duration,
    is_possible: bool,
}

impl PoolMachine {
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

    /// How many items are missing, including those that are starting.
    pub(super) fn missing(&self) -> usize {
        self.policy.size.saturating_sub(self.ready.len())
    }

    /// A starting item is ready.
    pub(super) fn ready(&mut self, now: Duration, id: ItemId) {
        self.starting = self.starting.saturating_sub(1);
        self.ready.insert(id, now);
    }

    /// An item could not be started.
    pub(super) fn failed(&mut self, now: Duration, random: u64) {
        self.starting = self.starting.saturating_sub(1);
        self.record_failure(now, random);
    }

    /// An item could not be started, and none ever can be.
    pub(super) fn disable(&mut self) {
        self.starting = self.starting.saturating_sub(1);
        self.is_possible = false;
    }

    /// A ready item ended. A retired item is unknown and changes nothing.
    pub(super) fn item_ended(&mut self, now: Duration, id: ItemId, end: ItemEnd, random: u64) {
        if self.ready.remove(&id).is_none() {
            return;
        }
        match end {
            // A claimed item shows that items can be created again.
            ItemEnd::Claimed => (self.failures, self.not_before) = (0, Duration::ZERO),
            ItemEnd::Died => self.record_failure(now, random),
        }
    }

    /// Records a failure. Failures during a pause count as the one that caused it, because all items of a pool may end
    /// for one reason.
    fn record_failure(&mut self, now: Duration, random: u64) {
        self.forget_old_failures(now);
        let is_new = now >= self.not_before;
        let before = if is_new { self.failures } else { self.failures.saturating_sub(1) };
        // The wait is partly random but never zero. Otherwise a start that fails at once would be tried without end.
        let wait = self.policy.backoff.ceiling(before) / 2 + self.policy.backoff.delay(before, random) / 2;
        self.failures = before.saturating_add(1);
        self.failed_last = now;
        self.not_before = self.not_before.max(now.saturating_add(wait));
    }

    /// Forgets failures that are too old to matter.
    fn forget_old_failures(&mut self, now: Duration) {
        if now.saturating_sub(self.failed_last) >= self.policy.backoff.healthy() {
            self.failures = 0;
        }
    }

    /// The actions that are due now.
    pub(super) fn next_actions(&mut self, now: Duration) -> PoolActions {
        self.forget_old_failures(now);
        let max_age = self.policy.max_age;
        let is_old = |born: &Duration| now.saturating_sub(*born) >= max_age;
        let retire: Vec<ItemId> =
            self.ready.iter().filter(|(_, born)| is_old(born)).map(|(id, _)| *id).collect();
        for id in &retire {
            self.ready.remove(id);
        }
        let next_old = self.ready.values().min().map(|born| born.saturating_add(max_age));
        let missing = self.missing().saturating_sub(self.starting);
        if !self.is_possible || missing == 0 {
            return PoolActions { start: 0, retire, wake: next_old };
        }
        if now < self.not_before {
            let wake = next_old.map_or(self.not_before, |old| old.min(self.not_before));
            return PoolActions { start: 0, retire, wake: Some(wake) };
        }
        // After a failure only one item is started at a time.
        let start_concurrency = if self.failures == 0 { self.policy.start_concurrency.max(1) } else { 1 };
        let start = missing.min(start_concurrency.saturating_sub(self.starting));
        self.starting += start;
        PoolActions { start, retire, wake: next_old }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn policy(size: usize, start_concurrency: usize) -> Policy {
        let backoff = Backoff::new(SECOND, SECOND * 30, SECOND * 60);
        Policy { size, start_concurrency, max_age: SECOND * 600, backoff }
    }

    fn started(start: usize) -> PoolActions {
        PoolActions { start, ..PoolActions::default() }
    }

    #[test]
    fn a_pool_is_filled_and_refilled_a_few_at_a_time() {
        let mut pool = PoolMachine::new(policy(3, 2));
        assert_eq!(pool.next_actions(SECOND), started(2));
        assert_eq!(pool.next_actions(SECOND), started(0));
        pool.ready(SECOND, 1);
        assert_eq!(pool.next_actions(SECOND).start, 1);
        pool.ready(SECOND, 2);
        pool.ready(SECOND * 2, 3);
        assert_eq!(
            pool.next_actions(SECOND * 2),
            PoolActions { wake: Some(SECOND * 601), ..PoolActions::default() }
        );
        pool.item_ended(SECOND * 3, 1, ItemEnd::Claimed, 0);
        assert_eq!(pool.next_actions(SECOND * 3).start, 1);
    }

    #[test]
    fn what_fails_is_tried_again_one_at_a_time_and_after_longer_waits() {
        let mut pool = PoolMachine::new(policy(4, 4));
        assert_eq!(pool.next_actions(Duration::ZERO).start, 4);
        for _ in 0..4 {
            pool.failed(Duration::ZERO, u64::MAX);
        }
        let mut now = Duration::ZERO;
        let mut waits = Vec::new();
        for _ in 0..4 {
            let next_actions = pool.next_actions(now);
            assert_eq!(next_actions.start, 0);
            waits.push((next_actions.wake.unwrap() - now).as_secs_f64().round());
            now = next_actions.wake.unwrap();
            assert_eq!(pool.next_actions(now).start, 1, "one is tried");
            pool.failed(now, u64::MAX);
        }
        assert_eq!(waits, [1.0, 2.0, 4.0, 8.0]);
        // One that is good makes up for all of it.
        now = pool.next_actions(now).wake.unwrap();
        assert_eq!(pool.next_actions(now).start, 1);
        pool.ready(now, 1);
        assert_eq!(pool.next_actions(now).start, 1);
        pool.item_ended(now, 1, ItemEnd::Claimed, 0);
        assert_eq!(pool.next_actions(now).start, 3);
    }

    #[test]
    fn what_dies_while_it_waits_is_replaced_after_a_wait() {
        let mut pool = PoolMachine::new(policy(1, 1));
        pool.next_actions(Duration::ZERO);
        pool.ready(Duration::ZERO, 1);
        pool.item_ended(SECOND, 1, ItemEnd::Died, 0);
        let next_actions = pool.next_actions(SECOND);
        assert_eq!((next_actions.start, next_actions.wake), (0, Some(SECOND + SECOND / 2)));
        assert_eq!(pool.next_actions(SECOND * 2).start, 1);
    }

    #[test]
    fn what_fails_together_counts_once() {
        let mut pool = PoolMachine::new(policy(8, 8));
        pool.next_actions(Duration::ZERO);
        (1..=8).for_each(|id| pool.ready(SECOND, id));
        // As when an engine ends, one after the other.
        for id in 1..=8_u64 {
            pool.item_ended(
                SECOND * 2 + SECOND / 100 * u32::try_from(id).unwrap(),
                id,
                ItemEnd::Died,
                u64::MAX,
            );
        }
        let now = SECOND * 2 + SECOND / 100 * 8;
        let again = pool.next_actions(now).wake.unwrap();
        let in_seconds = |wait: Duration| wait.as_secs_f64().round();
        assert_eq!(in_seconds(again - now), 1.0, "a first wait, from the last of them on");
        assert_eq!(pool.next_actions(again).start, 1);
        pool.failed(again, u64::MAX);
        let next = pool.next_actions(again).wake.unwrap();
        assert_eq!(in_seconds(next - again), 2.0, "what is tried then counts anew");
    }

    #[test]
    fn what_is_too_old_is_retired_and_what_is_impossible_is_left() {
        let mut pool = PoolMachine::new(policy(2, 2));
        pool.next_actions(Duration::ZERO);
        pool.ready(SECOND, 7);
        pool.ready(SECOND * 9, 8);
        let next_actions = pool.next_actions(SECOND * 601);
        assert_eq!(next_actions, PoolActions { start: 1, retire: vec![7], wake: Some(SECOND * 609) });
        pool.disable();
        pool.item_ended(SECOND * 602, 8, ItemEnd::Claimed, 0);
        assert_eq!(pool.next_actions(SECOND * 602), PoolActions::default());
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
            2 => (any::<prop::sample::Index>(), any::<u64>()).prop_map(|(which, random)| Happens::Died(which, random)),
            2 => (0..200_000_u64).prop_map(Happens::Passes),
        ]
    }

    /// The same cases every time. After a change of the machine, run more of them with another seed.
    fn campaign() -> ProptestConfig {
        ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(256) }
    }

    proptest! {
        #![proptest_config(campaign())]

        /// Compares with a simple count: never too many, never idle while some are missing, none started twice.
        #[test]
        fn it_has_never_too_many_and_never_gives_up(
            size in 0..6_usize,
            start_concurrency in 0..4_usize,
            events in prop::collection::vec(happens(), 0..80),
        ) {
            let mut pool = PoolMachine::new(policy(size, start_concurrency));
            let (mut now, mut starting, mut next) = (Duration::ZERO, 0_usize, 0);
            let mut ready: BTreeSet<ItemId> = BTreeSet::new();
            let mut failed = None;
            for event in events {
                match event {
                    Happens::Ready if starting > 0 => {
                        starting -= 1;
                        next += 1;
                        ready.insert(next);
                        pool.ready(now, next);
                    }
                    Happens::Failed(random) if starting > 0 => {
                        starting -= 1;
                        pool.failed(now, random);
                        failed = Some(now);
                    }
                    Happens::Taken(which) if !ready.is_empty() => {
                        let id = *ready.iter().nth(which.index(ready.len())).unwrap();
                        ready.remove(&id);
                        pool.item_ended(now, id, ItemEnd::Claimed, 0);
                        failed = None;
                    }
                    Happens::Died(which, random) if !ready.is_empty() => {
                        let id = *ready.iter().nth(which.index(ready.len())).unwrap();
                        ready.remove(&id);
                        pool.item_ended(now, id, ItemEnd::Died, random);
                        failed = Some(now);
                    }
                    Happens::Passes(millis) => now += Duration::from_millis(millis),
                    _ => {}
                }
                let next_actions = pool.next_actions(now);
                for id in &next_actions.retire {
                    prop_assert!(ready.remove(id), "what was ready");
                }
                starting += next_actions.start;
                prop_assert!(ready.len() + starting <= size);
                prop_assert!(starting <= start_concurrency.max(1) || next_actions.start == 0);
                // At least half of the first wait.
                if next_actions.start > 0 && let Some(failed) = failed {
                    prop_assert!(now >= failed + SECOND / 2);
                }
                if ready.len() + starting < size {
                    prop_assert!(starting > 0 || next_actions.wake.is_some_and(|wake| wake > now), "{next_actions:?}");
                }
                prop_assert_eq!(pool.next_actions(now).start, 0, "asked again at once");
            }
            // When all goes well from now on, it fills up.
            for _ in 0..(size * 3 + 3) {
                let next_actions = pool.next_actions(now);
                next_actions.retire.iter().for_each(|id| { ready.remove(id); });
                starting += next_actions.start;
                while starting > 0 {
                    starting -= 1;
                    next += 1;
                    ready.insert(next);
                    pool.ready(now, next);
                }
                if ready.len() < size && next_actions.start == 0 && let Some(wake) = next_actions.wake {
                    now = now.max(wake);
                }
            }
            prop_assert_eq!(ready.len(), size);
        }
    }
}
