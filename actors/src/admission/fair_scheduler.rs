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

use conjure_base::TenantId;

/// What a tenant may have of what a [`Gate`](super::AdmissionGate) admits to, at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Its part in relation to other tenants' when not all find room: one of weight 3 gets three times what one of weight 1
    /// gets. At most [`Share::HEAVIEST`]; what is more counts as that.
    pub weight: NonZeroU32,
    /// How many of its are admitted at a time, however much room there is. 0: none ever, each is refused at once.
    pub admitted: u32,
    /// How many of its wait at a time; a further one is refused at once. 0: none waits.
    pub waiting: u32,
}

impl Share {
    /// No weight beyond this is told apart.
    pub const HEAVIEST: u32 = 1_000;

    pub(super) fn weight(&self) -> u64 {
        u64::from(self.weight.get().min(Self::HEAVIEST))
    }
}

impl Default for Share {
    /// The weight 1, as many admitted as there is room for, 1,000 waiting.
    fn default() -> Self {
        Self { weight: NonZeroU32::MIN, admitted: u32::MAX, waiting: 1_000 }
    }
}

/// Whose a place at a gate is, and who waits for one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Requester {
    Tenant(TenantId),
    /// No tenant's: what is done before any of them needs it.
    Background,
}

impl Requester {
    pub(super) const fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Tenant(tenant) => Some(tenant),
            Self::Background => None,
        }
    }
}

impl From<&TenantId> for Requester {
    fn from(tenant: &TenantId) -> Self {
        Self::Tenant(tenant.clone())
    }
}

/// What one admission costs at weight 1. Divisible by every weight up to 10, and precise to a millionth for all of them.
const UNIT: u64 = 2_520 * 1_000_000;

/// What the house may have, whatever tenants may: it is never refused.
const BACKGROUND: Share = Share { weight: NonZeroU32::MIN, admitted: u32::MAX, waiting: u32::MAX };

/// A place among those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(u64);

/// What becomes of who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdmissionDecision {
    Admitted,
    Waiting(Ticket),
    /// As many of the party wait as may, or nothing of it is ever admitted.
    Refused,
}

/// Who is admitted, and who waits.
#[derive(Debug)]
pub(super) struct FairScheduler {
    capacity: u32,
    admitted: u32,
    default_share: Share,
    shares: BTreeMap<Requester, Share>,
    lanes: BTreeMap<Requester, Lane>,
    /// The parties that wait and may have more, the next one first.
    ready: BTreeSet<Rank>,
    /// The most that anybody had been given before they were admitted: where those begin who begin to wait.
    virtual_time: u64,
    tickets: u64,
}

/// A party that holds something, or waits.
#[derive(Debug)]
struct Lane {
    share: Share,
    admitted: u32,
    waiting: VecDeque<Ticket>,
    /// What it was given in relation to its weight.
    served: u64,
}

/// Lower is sooner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    load: u64,
    served: u64,
    requester: Requester,
}

impl Lane {
    /// `None`: nobody of it waits, or it has all it may have.
    fn rank(&self, requester: &Requester) -> Option<Rank> {
        let is_ready = !self.waiting.is_empty() && self.admitted < self.share.admitted;
        let load = match requester {
            Requester::Tenant(_) => u64::from(self.admitted) * (UNIT / self.share.weight()),
            Requester::Background => u64::MAX,
        };
        is_ready.then(|| Rank { load, served: self.served, requester: requester.clone() })
    }
}

impl FairScheduler {
    pub(super) fn new(capacity: u32, default_share: Share) -> Self {
        Self {
            capacity,
            admitted: 0,
            default_share,
            shares: BTreeMap::new(),
            lanes: BTreeMap::new(),
            ready: BTreeSet::new(),
            virtual_time: 0,
            tickets: 0,
        }
    }

    /// Somebody of the party asks. Whoever waits is told by [`FairScheduler::next`].
    pub(super) fn request(&mut self, requester: &Requester) -> AdmissionDecision {
        let share = self.share(requester);
        let has_room = self.admitted < self.capacity;
        let ticket = Ticket(self.tickets + 1);
        let (decision, start) = self.change(requester, |lane, virtual_time| {
            if lane.waiting.is_empty() {
                lane.served = lane.served.max(virtual_time);
            }
            let start = lane.served;
            if has_room && lane.waiting.is_empty() && lane.admitted < share.admitted {
                lane.admit();
                return (AdmissionDecision::Admitted, start);
            }
            if share.admitted == 0 || lane.waiting.len() as u64 >= u64::from(share.waiting) {
                return (AdmissionDecision::Refused, start);
            }
            lane.waiting.push_back(ticket);
            (AdmissionDecision::Waiting(ticket), start)
        });
        match decision {
            AdmissionDecision::Admitted => {
                self.admitted += 1;
                self.virtual_time = self.virtual_time.max(start);
            }
            AdmissionDecision::Waiting(_) => self.tickets += 1,
            AdmissionDecision::Refused => {}
        }
        decision
    }

    /// Admits the next one, where there is room.
    pub(super) fn next(&mut self) -> Option<(Requester, Ticket)> {
        if self.admitted >= self.capacity {
            return None;
        }
        let Rank { served, requester, .. } = self.ready.first()?.clone();
        self.virtual_time = self.virtual_time.max(served);
        let ticket = self.change(&requester, |lane, _| {
            let ticket = lane.waiting.pop_front();
            lane.admit();
            ticket
        })?;
        self.admitted += 1;
        Some((requester, ticket))
    }

    /// Somebody who was admitted is done.
    pub(super) fn release(&mut self, requester: &Requester) {
        self.admitted = self.admitted.saturating_sub(1);
        self.change(requester, |lane, _| lane.admitted = lane.admitted.saturating_sub(1));
    }

    /// Somebody does not wait any more; nothing happens when they were admitted before.
    pub(super) fn cancel_wait(&mut self, requester: &Requester, ticket: Ticket) {
        self.change(requester, |lane, _| lane.waiting.retain(|waiting| *waiting != ticket));
    }

    /// How much there is from now on. Where it is less than what is admitted, nobody is admitted until it is not.
    pub(super) const fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    /// What the party may have from now on; `None`: what every tenant may. Those who are admitted or wait stay.
    pub(super) fn set_share(&mut self, requester: &Requester, share: Option<Share>) {
        match share {
            Some(share) => drop(self.shares.insert(requester.clone(), share)),
            None => drop(self.shares.remove(requester)),
        }
        let share = self.share(requester);
        self.change(requester, |lane, _| lane.share = share);
    }

    /// What those may have from now on that have no share of their own.
    pub(super) fn set_default_share(&mut self, share: Share) {
        self.default_share = share;
        let lanes: Vec<Requester> = self.lanes.keys().cloned().collect();
        for requester in lanes {
            let share = self.share(&requester);
            self.change(&requester, |lane, _| lane.share = share);
        }
    }

    pub(super) const fn default_share(&self) -> Share {
        self.default_share
    }

    pub(super) fn share(&self, requester: &Requester) -> Share {
        match requester {
            Requester::Tenant(_) => self.shares.get(requester).copied().unwrap_or(self.default_share),
            Requester::Background => BACKGROUND,
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
    pub(super) fn load(&self, requester: &Requester) -> (u32, usize) {
        self.lanes.get(requester).map_or((0, 0), |lane| (lane.admitted, lane.waiting.len()))
    }

    /// How many wait of all parties.
    pub(super) fn waiting(&self) -> usize {
        self.lanes.values().map(|lane| lane.waiting.len()).sum()
    }

    /// Changes a lane, and puts it where it then belongs.
    fn change<T>(&mut self, requester: &Requester, change: impl FnOnce(&mut Lane, u64) -> T) -> T {
        let share = self.share(requester);
        let lane = self.lanes.entry(requester.clone()).or_insert_with(|| Lane {
            share,
            admitted: 0,
            waiting: VecDeque::new(),
            served: 0,
        });
        if let Some(rank) = lane.rank(requester) {
            self.ready.remove(&rank);
        }
        let done = change(lane, self.virtual_time);
        match lane.rank(requester) {
            Some(rank) => drop(self.ready.insert(rank)),
            None if lane.is_idle() => drop(self.lanes.remove(requester)),
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
        self.served = self.served.saturating_add(UNIT / self.share.weight());
    }
}

#[cfg(test)]
mod tests;
