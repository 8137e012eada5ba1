//! Counters of a tenant, over all of its sessions.
//! An append increments them in the same transaction, so both happen or none. They can also be incremented without an append. The journal
//! does not know what they count.

use std::borrow::Cow;

use crate::error::JournalError;

/// The longest name of a counter, in bytes.
pub const MAX_COUNTER_NAME_BYTES: usize = 128;

/// The largest value of a counter: it stops there.
pub const MAX_COUNT: u64 = i64::MAX.unsigned_abs();

/// An increment of a tenant's counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterIncrement {
    /// The name of the counter. A new one starts at 0. At most [`MAX_COUNTER_NAME_BYTES`] bytes.
    pub counter: Cow<'static, str>,
    /// The amount.
    pub amount: u64,
}

impl CounterIncrement {
    /// An increment of this counter by this amount.
    pub fn new(counter: impl Into<Cow<'static, str>>, amount: u64) -> Self {
        Self { counter: counter.into(), amount }
    }
}

/// Checks the limits of all implementations.
pub(crate) fn check_increments(increments: &[CounterIncrement]) -> Result<(), JournalError> {
    match increments.iter().map(|increment| increment.counter.len()).max() {
        Some(size) if size > MAX_COUNTER_NAME_BYTES => {
            Err(JournalError::TooLarge { what: "the name of a counter", size, limit: MAX_COUNTER_NAME_BYTES })
        }
        _ => Ok(()),
    }
}
