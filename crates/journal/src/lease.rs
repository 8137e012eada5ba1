//! The right to write a session, for a time.

use std::fmt;

use conjure_base::Timestamp;

use crate::error::JournalError;
use crate::key::Epoch;

/// The longest owner's name, in bytes.
const LONGEST_OWNER: usize = 128;

/// Who holds a lease: a host. 1 to 128 bytes, no control characters.
///
/// The same owner may lease a session again at any time. So a host that is the only one of its name, whose predecessor is
/// surely dead when it starts, keeps the name and waits for nothing after a crash. Where two may live at a time, each has a
/// name of its own, another one after each start: the leftovers of the dead are then waited for like those of a stranger.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(String);

impl Owner {
    /// Checks `text` and takes it as an owner's name.
    ///
    /// # Errors
    /// `Invalid` when it is empty, too long, or holds control characters.
    pub fn new(text: impl Into<String>) -> Result<Self, JournalError> {
        let text = text.into();
        if (1..=LONGEST_OWNER).contains(&text.len()) && !text.chars().any(char::is_control) {
            Ok(Self(text))
        } else {
            Err(JournalError::Invalid {
                what: "an owner",
                rule: "it must have 1 to 128 bytes and no control characters",
            })
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A lease as it was given or renewed. It may have ended since: an append under its epoch says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub owner: Owner,
    /// What its holder appends under.
    pub epoch: Epoch,
    /// When others may take it, by the journal's own clock (of the database, not of the holder). A holder that cannot
    /// renew it stops well before.
    pub until: Timestamp,
}
