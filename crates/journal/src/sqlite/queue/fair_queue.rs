//! Pure fair queue: which tenant's call runs next, and the queue limits. It has no clock.
//! Each tenant has a lane, first in, first out. The cost of a call is a constant plus its bytes; the result of a read is not known here and
//! costs nothing. The next call comes from the lane with the least virtual time (start-time fair queueing). While all lanes have calls,
//! their shares are in proportion to their weights, within one call.
//!
//! A lane that becomes ready starts at the current virtual time, so it has saved up no share. If it was ahead of the others when it became
//! idle, it stays ahead until they have caught up, or the queue is empty. So no tenant gains a larger share by being early, by frequent
//! calls, by leaving and coming back, or by large bodies.
//!
//! A tenant may use no more space than what remains free, so some always remains for others.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::num::NonZeroU32;

use conjure_base::TenantId;

/// How much may wait in the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    pub(crate) calls: usize,
    pub(crate) calls_per_tenant: usize,
    pub(crate) bytes: usize,
    pub(crate) bytes_per_tenant: usize,
}

/// The tenant of a call; `None` for a call without a tenant, such as a list of tenants.
pub(crate) type LaneKey = Option<TenantId>;

/// The constant cost of a call: it changes about four pages, however small it is.
pub(crate) const CALL_COST: usize = 16 << 10;

/// The cost of a byte at weight 1. It is divisible by every weight up to 10, and precise to a millionth for all weights.
const BYTE_COST: u128 = 2_520 * 1_000_000;

/// How much waits in the queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueLoad {
    pub(crate) calls: usize,
    pub(crate) bytes: usize,
}

/// Why a call was refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum QueueFull {
    /// The limit of its tenant is reached, with this load.
    Tenant(QueueLoad),
    /// The total limit is reached, with this load.
    Total(QueueLoad),
}

/// The waiting calls.
#[derive(Debug)]
pub(crate) struct FairQueue<J> {
    limits: QueueLimits,
    lanes: HashMap<LaneKey, TenantLane<J>>,
    /// The lanes with calls.
    ready: BTreeMap<VirtualTime, LaneKey>,
    /// The idle lanes whose virtual time is ahead of the current one.
    idle_ahead: BTreeMap<VirtualTime, LaneKey>,
    /// The current virtual time: that of the last call's lane before the call. New lanes start here.
    virtual_now: u128,
    /// The next sequence number, which breaks ties.
    next_seq: u64,
    total: QueueLoad,
    /// The sum of the lanes' bytes, each capped at the limit of a tenant.
    accounted_bytes: usize,
}

/// The virtual time of a lane and a sequence number. The lowest comes first.
type VirtualTime = (u128, u64);

/// The calls of one tenant.
#[derive(Debug)]
struct TenantLane<J> {
    /// The calls with their bytes.
    waiting: VecDeque<(J, usize)>,
    bytes: usize,
    position: VirtualTime,
}

impl<J> FairQueue<J> {
    pub(crate) fn new(limits: QueueLimits) -> Self {
        // The limit of a tenant is within the total limit.
        let bytes_per_tenant = limits.bytes_per_tenant.min(limits.bytes);
        Self {
            limits: QueueLimits { bytes_per_tenant, ..limits },
            lanes: HashMap::new(),
            ready: BTreeMap::new(),
            idle_ahead: BTreeMap::new(),
            virtual_now: 0,
            next_seq: 0,
            total: QueueLoad::default(),
            accounted_bytes: 0,
        }
    }

    /// The total load.
    pub(crate) const fn load(&self) -> QueueLoad {
        self.total
    }

    fn lane_load(&self, lane: &LaneKey) -> QueueLoad {
        let lane_calls = self.lanes.get(lane);
        lane_calls.map_or_else(QueueLoad::default, |lane_calls| QueueLoad {
            calls: lane_calls.waiting.len(),
            bytes: lane_calls.bytes,
        })
    }

    /// Queues a call with bodies of this size.
    pub(crate) fn push(&mut self, lane: LaneKey, bytes: usize, call: J) -> Result<(), QueueFull> {
        self.check(&lane, bytes)?;
        self.next_seq += 1;
        let lane_calls = match self.lanes.entry(lane) {
            Entry::Occupied(lane_calls) => {
                let lane_calls = lane_calls.into_mut();
                if let Some(lane) = self.idle_ahead.remove(&lane_calls.position) {
                    lane_calls.position.1 = self.next_seq;
                    self.ready.insert(lane_calls.position, lane);
                }
                lane_calls
            }
            Entry::Vacant(lane) => {
                let key = (self.virtual_now, self.next_seq);
                self.ready.insert(key, lane.key().clone());
                lane.insert(TenantLane { waiting: VecDeque::new(), bytes: 0, position: key })
            }
        };
        lane_calls.waiting.push_back((call, bytes));
        self.accounted_bytes -= lane_calls.bytes.min(self.limits.bytes_per_tenant);
        lane_calls.bytes += bytes;
        self.accounted_bytes += lane_calls.bytes.min(self.limits.bytes_per_tenant);
        self.total.calls += 1;
        self.total.bytes += bytes;
        Ok(())
    }

    fn check(&self, lane: &LaneKey, bytes: usize) -> Result<(), QueueFull> {
        let lane_load = self.lane_load(lane);
        let free = self.limits.calls.saturating_sub(self.total.calls);
        if free == 0 {
            return Err(QueueFull::Total(self.total));
        }
        if lane_load.calls >= self.limits.calls_per_tenant.min(free) {
            return Err(QueueFull::Tenant(lane_load));
        }
        if bytes == 0 {
            return Ok(());
        }
        let free = self.limits.bytes - self.accounted_bytes;
        match lane_load.bytes {
            // A single large call counts at most as the limit of a tenant.
            0 if bytes.min(self.limits.bytes_per_tenant) <= free => Ok(()),
            0 => Err(QueueFull::Total(self.total)),
            some if some.saturating_add(bytes) <= self.limits.bytes_per_tenant.min(free) => Ok(()),
            _ => Err(QueueFull::Tenant(lane_load)),
        }
    }

    /// The bytes of the next call.
    pub(crate) fn next_bytes(&self) -> Option<usize> {
        let (_, lane) = self.ready.first_key_value()?;
        self.lanes.get(lane)?.waiting.front().map(|(_, bytes)| *bytes)
    }

    /// Takes the next call. `weight` returns the weight of its lane.
    pub(crate) fn take(&mut self, weight: impl FnOnce(&LaneKey) -> NonZeroU32) -> Option<J> {
        let (key, lane) = self.ready.pop_first()?;
        let lane_calls = self.lanes.get_mut(&lane)?;
        let (call, bytes) = lane_calls.waiting.pop_front()?;
        self.virtual_now = key.0;
        self.next_seq += 1;
        let cost =
            (CALL_COST as u128 + bytes as u128).saturating_mul(BYTE_COST) / u128::from(weight(&lane).get());
        lane_calls.position = (key.0.saturating_add(cost), self.next_seq);
        self.accounted_bytes -= lane_calls.bytes.min(self.limits.bytes_per_tenant);
        lane_calls.bytes -= bytes;
        self.accounted_bytes += lane_calls.bytes.min(self.limits.bytes_per_tenant);
        self.total.calls -= 1;
        self.total.bytes -= bytes;
        let target = if lane_calls.waiting.is_empty() { &mut self.idle_ahead } else { &mut self.ready };
        target.insert(lane_calls.position, lane);
        self.drop_idle_lanes();
        Some(call)
    }

    /// Drops idle lanes that the current virtual time has reached.
    fn drop_idle_lanes(&mut self) {
        while let Some(first) = self.idle_ahead.first_entry()
            && first.key().0 <= self.virtual_now
        {
            let lane = first.remove();
            self.lanes.remove(&lane);
        }
    }

    /// Drops all idle lanes, when the queue is empty.
    pub(crate) fn reset_idle(&mut self) {
        for (_, lane) in std::mem::take(&mut self.idle_ahead) {
            self.lanes.remove(&lane);
        }
    }
}

#[cfg(test)]
mod tests;
