//! Whose turn it is, and how much may wait: as a machine without a clock.
//!
//! Each tenant has a lane, first in, first out. A call costs what it takes of the thread that does it: something for itself, and
//! the bytes that it brings (what a read will find is not known here, and counts nothing). The next call is of the lane that was given the least in relation to its weight (start-time fair queueing):
//! where all lanes have calls, what each was given is in the proportion of the weights, but for one call. A lane that begins to
//! wait begins where the others are: it has saved up nothing, and what it had beyond them before it left is remembered until
//! they have had as much, or nothing is left to do. So a larger part is not had by being early, by asking often, by coming
//! back, or by large bodies.
//!
//! No tenant takes the last places: it may have no more than it leaves, so there are some for whoever has less.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::num::NonZeroU32;

use conjure_base::TenantId;

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) calls: usize,
    pub(crate) calls_per_tenant: usize,
    pub(crate) bytes: usize,
    pub(crate) bytes_per_tenant: usize,
}

/// Whose call it is; `None` when it is nobody's, such as a list of tenants.
pub(crate) type Lane = Option<TenantId>;

/// What a call costs beside its bytes: it changes four pages or so, however little it says.
pub(crate) const CALL: usize = 16 << 10;

/// What a byte costs at weight 1. Divisible by every weight up to 10, and precise to a millionth for all of them.
const UNIT: u128 = 2_520 * 1_000_000;

/// How much waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) calls: usize,
    pub(crate) bytes: usize,
}

/// Why a call may not wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// So much waits of its tenant.
    OfTenant(Load),
    /// So much waits of all.
    OfAll(Load),
}

/// The calls that wait.
#[derive(Debug)]
pub(crate) struct Turns<J> {
    bounds: Bounds,
    lanes: HashMap<Lane, Line<J>>,
    /// The lanes that have calls.
    ready: BTreeMap<Place, Lane>,
    /// The lanes that have none, and were given more than whoever begins now.
    ahead: BTreeMap<Place, Lane>,
    /// What the lane of the last call had been given before it: where those begin who begin to wait.
    level: u128,
    /// How many places there were.
    places: u64,
    all: Load,
    /// The bytes of all lanes; of none more than a tenant may have.
    counted: usize,
}

/// Lower is sooner: what the lane was given, then who has been there for longer.
type Place = (u128, u64);

/// The calls of one lane.
#[derive(Debug)]
struct Line<J> {
    /// With their bytes.
    waiting: VecDeque<(J, usize)>,
    bytes: usize,
    place: Place,
}

impl<J> Turns<J> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        // What one tenant may have is a part of what all may.
        let bytes_per_tenant = bounds.bytes_per_tenant.min(bounds.bytes);
        Self {
            bounds: Bounds { bytes_per_tenant, ..bounds },
            lanes: HashMap::new(),
            ready: BTreeMap::new(),
            ahead: BTreeMap::new(),
            level: 0,
            places: 0,
            all: Load::default(),
            counted: 0,
        }
    }

    /// How much waits of all lanes.
    pub(crate) const fn load(&self) -> Load {
        self.all
    }

    fn load_of(&self, lane: &Lane) -> Load {
        let line = self.lanes.get(lane);
        line.map_or_else(Load::default, |line| Load { calls: line.waiting.len(), bytes: line.bytes })
    }

    /// Lets a call with bodies of so many bytes wait.
    pub(crate) fn push(&mut self, lane: Lane, bytes: usize, call: J) -> Result<(), Refused> {
        self.check(&lane, bytes)?;
        self.places += 1;
        let line = match self.lanes.entry(lane) {
            Entry::Occupied(line) => {
                let line = line.into_mut();
                if let Some(lane) = self.ahead.remove(&line.place) {
                    line.place.1 = self.places;
                    self.ready.insert(line.place, lane);
                }
                line
            }
            Entry::Vacant(lane) => {
                let place = (self.level, self.places);
                self.ready.insert(place, lane.key().clone());
                lane.insert(Line { waiting: VecDeque::new(), bytes: 0, place })
            }
        };
        line.waiting.push_back((call, bytes));
        self.counted -= line.bytes.min(self.bounds.bytes_per_tenant);
        line.bytes += bytes;
        self.counted += line.bytes.min(self.bounds.bytes_per_tenant);
        self.all.calls += 1;
        self.all.bytes += bytes;
        Ok(())
    }

    fn check(&self, lane: &Lane, bytes: usize) -> Result<(), Refused> {
        let of_lane = self.load_of(lane);
        let free = self.bounds.calls.saturating_sub(self.all.calls);
        if free == 0 {
            return Err(Refused::OfAll(self.all));
        }
        if of_lane.calls >= self.bounds.calls_per_tenant.min(free) {
            return Err(Refused::OfTenant(of_lane));
        }
        if bytes == 0 {
            return Ok(());
        }
        let free = self.bounds.bytes - self.counted;
        match of_lane.bytes {
            // However large it is, it takes no more of what all may have than a tenant's part.
            0 if bytes.min(self.bounds.bytes_per_tenant) <= free => Ok(()),
            0 => Err(Refused::OfAll(self.all)),
            some if some.saturating_add(bytes) <= self.bounds.bytes_per_tenant.min(free) => Ok(()),
            _ => Err(Refused::OfTenant(of_lane)),
        }
    }

    /// How many bytes the next call has.
    pub(crate) fn next_bytes(&self) -> Option<usize> {
        let (_, lane) = self.ready.first_key_value()?;
        self.lanes.get(lane)?.waiting.front().map(|(_, bytes)| *bytes)
    }

    /// Takes the next call. Its lane has this weight.
    pub(crate) fn take(&mut self, weight: impl FnOnce(&Lane) -> NonZeroU32) -> Option<J> {
        let (place, lane) = self.ready.pop_first()?;
        let line = self.lanes.get_mut(&lane)?;
        let (call, bytes) = line.waiting.pop_front()?;
        self.level = place.0;
        self.places += 1;
        let cost = (CALL as u128 + bytes as u128).saturating_mul(UNIT) / u128::from(weight(&lane).get());
        line.place = (place.0.saturating_add(cost), self.places);
        self.counted -= line.bytes.min(self.bounds.bytes_per_tenant);
        line.bytes -= bytes;
        self.counted += line.bytes.min(self.bounds.bytes_per_tenant);
        self.all.calls -= 1;
        self.all.bytes -= bytes;
        let left = if line.waiting.is_empty() { &mut self.ahead } else { &mut self.ready };
        left.insert(line.place, lane);
        self.forget();
        Some(call)
    }

    /// Forgets the lanes that left, and have no more than whoever begins now.
    fn forget(&mut self) {
        while let Some(first) = self.ahead.first_entry()
            && first.key().0 <= self.level
        {
            let lane = first.remove();
            self.lanes.remove(&lane);
        }
    }

    /// Nothing is left to do, so nobody is ahead of anybody.
    pub(crate) fn rest(&mut self) {
        for (_, lane) in std::mem::take(&mut self.ahead) {
            self.lanes.remove(&lane);
        }
    }
}

#[cfg(test)]
mod tests;
