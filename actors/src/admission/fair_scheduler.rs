//! The order of admission: weighted max-min fairness, as a pure state machine without a clock.
//!
//! - The next permit goes to the tenant with the fewest admitted requests in relation to its weight.
//! - Among equals, it goes to the tenant that has received the least. This is start-time fair queueing: a tenant that
//!   begins to wait starts at the virtual time of the others, and earns no credit while it is idle.
//! - Within a tenant, the order is first in, first out.
//!
//! So a tenant gains nothing by being early, by requesting often, or by holding permits for long.
//!
//! Background work is done before a tenant needs it. It has its own lane, and gets only room that no tenant waits for.
//! Otherwise a part of the room would go to the tenants that request most often.
//!
//! The scheduler keeps no state of a tenant that holds no permit and does not wait, except its configured share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;

use conjure_base::TenantId;

/// The share of a tenant at an [`AdmissionGate`](super::AdmissionGate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The tenant's weight when there is not enough room: weight 3 gets three times as much as weight 1. Weights above
    /// [`Share::HEAVIEST`] count as [`Share::HEAVIEST`].
    pub weight: NonZeroU32,
    /// The maximum number of admitted requests of the tenant, however much room there is. With 0, each request is
    /// refused at once.
    pub admitted: u32,
    /// The maximum number of waiting requests of the tenant. Further requests are refused at once. With 0, none waits.
    pub waiting: u32,
}

impl Share {
    /// The largest weight.
    pub const HEAVIEST: u32 = 1_000;

    pub(super) fn weight(&self) -> u64 {
        u64::from(self.weight.get().min(Self::HEAVIEST))
    }
}

impl Default for Share {
    /// Weight 1, no limit of admitted requests, 1,000 waiting ones.
    fn default() -> Self {
        Self { weight: NonZeroU32::MIN, admitted: u32::MAX, waiting: 1_000 }
    }
}

/// The requester of a permit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Requester {
    Tenant(TenantId),
    /// Background work, which belongs to no tenant.
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

/// The cost of one admission at weight 1. Dividing it by a weight up to 10 is exact. For all other weights the result
/// is precise to a millionth.
const UNIT: u64 = 2_520 * 1_000_000;

/// The share of background work, which is never refused.
const BACKGROUND: Share = Share { weight: NonZeroU32::MIN, admitted: u32::MAX, waiting: u32::MAX };

/// The place of a waiting request in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(u64);

/// The scheduler's answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdmissionDecision {
    Admitted,
    Waiting(Ticket),
    /// The requester has the maximum number of waiting requests, or its share is zero.
    Refused,
}

/// The admitted and the waiting requests.
#[derive(Debug)]
pub(super) struct FairScheduler {
    capacity: u32,
    admitted: u32,
    default_share: Share,
    shares: BTreeMap<Requester, Share>,
    lanes: BTreeMap<Requester, Lane>,
    /// The requesters that wait and may have one more permit, the next one first.
    ready: BTreeSet<Rank>,
    /// The virtual time, at which requesters that begin to wait start.
    virtual_time: u64,
    tickets: u64,
}

/// The state of a requester that holds a permit or waits.
#[derive(Debug)]
struct Lane {
    share: Share,
    admitted: u32,
    waiting: VecDeque<Ticket>,
    /// The sum of the requester's admissions, each divided by its weight.
    served: u64,
}

/// The order of requesters; lower ranks come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    load: u64,
    served: u64,
    requester: Requester,
}

impl Lane {
    /// The rank of a requester; `None` if it does not wait or has its maximum of permits.
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

    /// Requests a permit. A later call of [`FairScheduler::next`] returns the ticket of a waiting request.
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

    /// Admits the next waiting request, if there is room.
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

    /// Releases a permit.
    pub(super) fn release(&mut self, requester: &Requester) {
        self.admitted = self.admitted.saturating_sub(1);
        self.change(requester, |lane, _| lane.admitted = lane.admitted.saturating_sub(1));
    }

    /// Cancels a waiting request. Has no effect if the request was admitted before.
    pub(super) fn cancel_wait(&mut self, requester: &Requester, ticket: Ticket) {
        self.change(requester, |lane, _| lane.waiting.retain(|waiting| *waiting != ticket));
    }

    /// Changes the capacity. If more requests are admitted than the new capacity, no other is admitted until enough
    /// have ended.
    pub(super) const fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    /// Changes the share of a requester; `None` restores the default share. Admitted and waiting requests stay.
    pub(super) fn set_share(&mut self, requester: &Requester, share: Option<Share>) {
        match share {
            Some(share) => drop(self.shares.insert(requester.clone(), share)),
            None => drop(self.shares.remove(requester)),
        }
        let share = self.share(requester);
        self.change(requester, |lane, _| lane.share = share);
    }

    /// Changes the share of the tenants that have none of their own.
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

    /// How many requests are admitted in all.
    pub(super) const fn admitted(&self) -> u32 {
        self.admitted
    }

    /// How many requests of this requester are admitted, and how many wait.
    pub(super) fn load(&self, requester: &Requester) -> (u32, usize) {
        self.lanes.get(requester).map_or((0, 0), |lane| (lane.admitted, lane.waiting.len()))
    }

    /// How many requests wait in all.
    pub(super) fn waiting(&self) -> usize {
        self.lanes.values().map(|lane| lane.waiting.len()).sum()
    }

    /// Changes the lane of a requester, and updates its rank.
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
