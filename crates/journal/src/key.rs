//! The key of a session, and the epoch of its writer.

use std::fmt;

use conjure_base::{SessionId, TenantId};

/// The key of a session. The same id under another tenant is another session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The tenant.
    pub tenant: TenantId,
    /// The session's id.
    pub session: SessionId,
}

impl SessionKey {
    /// The session with this id of this tenant.
    #[must_use]
    pub const fn new(tenant: TenantId, session: SessionId) -> Self {
        Self { tenant, session }
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.session)
    }
}

/// The fencing token of a session's writer. Each lease has a higher epoch than all earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch of a session that was never leased, for a process that is the journal's only user.
    pub const NONE: Self = Self(0);

    /// The epoch with this number, for an implementation that reads it back.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Its number; that of [`Epoch::NONE`] is 0.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
