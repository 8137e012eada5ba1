//! The order in which those who wait are admitted: weighted max-min fairness, as a machine without a clock.
//!
//! Room goes to the tenant that has the least of it now in relation to its weight; among equals to the one that was given
//! the least since it waits (start-time fair queueing: a tenant that begins to wait begins where the others are, and has
//! saved up nothing). Within a tenant, first in, first out. So a larger share is not had by being early, by asking often, or
//! by holding for long.
//!
//! What is done before any tenant needs it (by the house) has a lane beside theirs, and room that no tenant waits for: what it makes
//! is for whoever comes next, so a part of the room for it would be had by whoever comes often.
//!
//! A tenant that neither holds anything nor waits is forgotten.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;

use super::party::Party;
use super::share::Share;

/// What one admission costs at weight 1. Divisible by every weight up to 10, and precise to a millionth for all of them.
const UNIT: u64 = 2_520 * 1_000_000;

/// What the house may have, whatever tenants may: it is never refused.
const HOUSE: Share = Share { weight: NonZeroU32::MIN, admitted: u32::MAX, waiting: u32::MAX };

/// A place among those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(u64);

/// What becomes of who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Admitted,
    Waiting(Ticket),
    /// As many of the party wait as may, or nothing of it is ever admitted.
    Refused,
}

/// Who is admitted, and who waits.
#[derive(Debug)]
pub(super) struct Schedule {
    capacity: u32,
    admitted: u32,
    standard: Share,
    shares: BTreeMap<Party, Share>,
    lanes: BTreeMap<Party, Lane>,
    /// The parties that wait and may have more, the next one first.
    ready: BTreeSet<Rank>,
    /// The most that anybody had been given before they were admitted: where those begin who begin to wait.
    level: u64,
    tickets: u64,
}

/// A party that holds something, or waits.
#[derive(Debug)]
struct Lane {
    share: Share,
    admitted: u32,
    waiting: VecDeque<Ticket>,
    /// What it was given in relation to its weight.
    given: u64,
}

/// Lower is sooner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    load: u64,
    given: u64,
    party: Party,
}

impl Lane {
    /// `None`: nobody of it waits, or it has all it may have.
    fn rank(&self, party: &Party) -> Option<Rank> {
        let is_ready = !self.waiting.is_empty() && self.admitted < self.share.admitted;
        let load = match party {
            Party::Tenant(_) => u64::from(self.admitted) * (UNIT / self.share.weight()),
            Party::House => u64::MAX,
        };
        is_ready.then(|| Rank { load, given: self.given, party: party.clone() })
    }
}

impl Schedule {
    pub(super) fn new(capacity: u32, standard: Share) -> Self {
        Self {
            capacity,
            admitted: 0,
            standard,
            shares: BTreeMap::new(),
            lanes: BTreeMap::new(),
            ready: BTreeSet::new(),
            level: 0,
            tickets: 0,
        }
    }

    /// Somebody of the party asks. Whoever waits is told by [`Schedule::next`].
    pub(super) fn ask(&mut self, party: &Party) -> Asked {
        let share = self.share(party);
        let has_room = self.admitted < self.capacity;
        let ticket = Ticket(self.tickets + 1);
        let (asked, start) = self.change(party, |lane, level| {
            if lane.waiting.is_empty() {
                lane.given = lane.given.max(level);
            }
            let start = lane.given;
            if has_room && lane.waiting.is_empty() && lane.admitted < share.admitted {
                lane.admit();
                return (Asked::Admitted, start);
            }
            if share.admitted == 0 || lane.waiting.len() as u64 >= u64::from(share.waiting) {
                return (Asked::Refused, start);
            }
            lane.waiting.push_back(ticket);
            (Asked::Waiting(ticket), start)
        });
        match asked {
            Asked::Admitted => {
                self.admitted += 1;
                self.level = self.level.max(start);
            }
            Asked::Waiting(_) => self.tickets += 1,
            Asked::Refused => {}
        }
        asked
    }

    /// Admits the next one, where there is room.
    pub(super) fn next(&mut self) -> Option<(Party, Ticket)> {
        if self.admitted >= self.capacity {
            return None;
        }
        let Rank { given, party, .. } = self.ready.first()?.clone();
        self.level = self.level.max(given);
        let ticket = self.change(&party, |lane, _| {
            let ticket = lane.waiting.pop_front();
            lane.admit();
            ticket
        })?;
        self.admitted += 1;
        Some((party, ticket))
    }

    /// Somebody who was admitted is done.
    pub(super) fn give_back(&mut self, party: &Party) {
        self.admitted = self.admitted.saturating_sub(1);
        self.change(party, |lane, _| lane.admitted = lane.admitted.saturating_sub(1));
    }

    /// Somebody does not wait any more; nothing happens when they were admitted before.
    pub(super) fn leave(&mut self, party: &Party, ticket: Ticket) {
        self.change(party, |lane, _| lane.waiting.retain(|waiting| *waiting != ticket));
    }

    /// How much there is from now on. Where it is less than what is admitted, nobody is admitted until it is not.
    pub(super) const fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    /// What the party may have from now on; `None`: what every tenant may. Those who are admitted or wait stay.
    pub(super) fn set_share(&mut self, party: &Party, share: Option<Share>) {
        match share {
            Some(share) => drop(self.shares.insert(party.clone(), share)),
            None => drop(self.shares.remove(party)),
        }
        let share = self.share(party);
        self.change(party, |lane, _| lane.share = share);
    }

    /// What those may have from now on that have no share of their own.
    pub(super) fn set_standard(&mut self, share: Share) {
        self.standard = share;
        let lanes: Vec<Party> = self.lanes.keys().cloned().collect();
        for party in lanes {
            let share = self.share(&party);
            self.change(&party, |lane, _| lane.share = share);
        }
    }

    pub(super) const fn standard(&self) -> Share {
        self.standard
    }

    pub(super) fn share(&self, party: &Party) -> Share {
        match party {
            Party::Tenant(_) => self.shares.get(party).copied().unwrap_or(self.standard),
            Party::House => HOUSE,
        }
    }

    pub(super) const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// How many are admitted of all parties.
    pub(super) const fn admitted(&self) -> u32 {
        self.admitted
    }

    /// How many of the party are admitted, and how many wait.
    pub(super) fn load(&self, party: &Party) -> (u32, usize) {
        self.lanes.get(party).map_or((0, 0), |lane| (lane.admitted, lane.waiting.len()))
    }

    /// How many wait of all parties.
    pub(super) fn waiting(&self) -> usize {
        self.lanes.values().map(|lane| lane.waiting.len()).sum()
    }

    /// Changes a lane, and puts it where it then belongs.
    fn change<T>(&mut self, party: &Party, change: impl FnOnce(&mut Lane, u64) -> T) -> T {
        let share = self.share(party);
        let lane = self.lanes.entry(party.clone()).or_insert_with(|| Lane {
            share,
            admitted: 0,
            waiting: VecDeque::new(),
            given: 0,
        });
        if let Some(rank) = lane.rank(party) {
            self.ready.remove(&rank);
        }
        let done = change(lane, self.level);
        match lane.rank(party) {
            Some(rank) => drop(self.ready.insert(rank)),
            None if lane.is_idle() => drop(self.lanes.remove(party)),
            None => {}
        }
        done
    }
}

impl Lane {
    fn is_idle(&self) -> bool {
        self.admitted == 0 && self.waiting.is_empty()
    }

    fn admit(&mut self) {
        self.admitted = self.admitted.saturating_add(1);
        self.given = self.given.saturating_add(UNIT / self.share.weight());
    }
}

#[cfg(test)]
mod tests;
