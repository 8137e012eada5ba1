//! What a tenant may have of what a gate admits to.

use std::num::NonZeroU32;

/// What a tenant may have of what a [`Gate`](super::Gate) admits to, at a time.
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
