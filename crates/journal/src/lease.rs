//! The lease of a session: a time-limited exclusive right to write it.

use std::fmt;

use conjure_base::Timestamp;

use crate::key::Epoch;

/// The longest owner's name, in bytes.
const MAX_OWNER_BYTES: usize = 128;

/// A name that no owner of a lease can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name of an owner must have 1 to 128 bytes and no control characters")]
pub struct LeaseOwnerError;

/// The name of a process that holds leases: 1 to 128 bytes, no control characters.
/// The same owner may acquire a session's lease again at any time. So a process whose predecessor is certainly dead keeps the name, and
/// waits for no lease after a crash. If two processes may run at the same time, each start needs a new name: leases of the dead process
/// must then expire.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseOwner(String);

impl LeaseOwner {
    /// Checks the name.
    ///
    /// # Errors
    /// When it is empty, too long, or has control characters.
    pub fn new(text: impl Into<String>) -> Result<Self, LeaseOwnerError> {
        let text = text.into();
        if (1..=MAX_OWNER_BYTES).contains(&text.len()) && !text.chars().any(char::is_control) {
            Ok(Self(text))
        } else {
            Err(LeaseOwnerError)
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LeaseOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A lease at the time of its start or renewal. It may have ended since; then an append under its epoch fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The holder.
    pub owner: LeaseOwner,
    /// The epoch of the holder's appends.
    pub epoch: Epoch,
    /// When it expires, by the journal's own clock. A holder that cannot renew it must stop well before.
    pub until: Timestamp,
}
