//! Counters of a tenant: how much was used of something, over all of its sessions.
//!
//! They change with appends, in the same transaction: what was appended is charged for, and what was not is not, whoever dies
//! in between. Or by themselves, for what nothing is appended for. The journal does not know what they count.

use std::borrow::Cow;

use crate::error::JournalError;

/// The longest name of a counter, in bytes.
pub const LONGEST_COUNTER: usize = 128;

/// No counter goes beyond this: it stays there.
pub const LARGEST_COUNT: u64 = i64::MAX.unsigned_abs();

/// What is added to a counter of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// Which counter, as the writer names it. One that is new begins at 0. At most [`LONGEST_COUNTER`] bytes.
    pub counter: Cow<'static, str>,
    /// How much is added.
    pub amount: u64,
}

impl Charge {
    /// So much, to this counter.
    pub fn new(counter: impl Into<Cow<'static, str>>, amount: u64) -> Self {
        Self { counter: counter.into(), amount }
    }
}

/// Refuses what no implementation takes.
pub(crate) fn check_charges(charges: &[Charge]) -> Result<(), JournalError> {
    match charges.iter().map(|charge| charge.counter.len()).max() {
        Some(size) if size > LONGEST_COUNTER => {
            Err(JournalError::TooLarge { what: "the name of a counter", size, limit: LONGEST_COUNTER })
        }
        _ => Ok(()),
    }
}
