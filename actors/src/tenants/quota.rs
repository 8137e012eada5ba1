//! What a tenant has as much of as it may.

use std::fmt;
use std::time::Duration;

use conjure_base::TenantId;
use conjure_conversation::Limit;

use super::budget::{Budget, BudgetResource, Period};

/// What a tenant may have only so much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quota {
    /// Sessions that are live.
    LiveSessions,
    /// Sessions that are recorded, live or not.
    RecordedSessions,
    /// Bytes of its data folder.
    DiskBytes,
    /// Files and folders in its data folder.
    Inodes,
    /// Tokens over a time.
    Tokens(Period),
    /// Millionths of a dollar over a time.
    Cost(Period),
}

impl Quota {
    pub(crate) const fn of(resource: BudgetResource, period: Period) -> Self {
        match resource {
            BudgetResource::Tokens => Self::Tokens(period),
            BudgetResource::Cost => Self::Cost(period),
        }
    }

    /// The limit that a turn ends with.
    pub(crate) const fn limit(self) -> Limit {
        match self {
            Self::Cost(_) => Limit::TenantCost,
            _ => Limit::TenantTokens,
        }
    }

    const fn hint(self) -> &'static str {
        match self {
            Self::LiveSessions => "close one, or raise it",
            Self::RecordedSessions => "delete one, or raise it",
            Self::DiskBytes | Self::Inodes => "delete sessions, or files of their workspaces, or raise it",
            Self::Tokens(Period::Total) | Self::Cost(Period::Total) => "raise it",
            Self::Tokens(_) | Self::Cost(_) => "wait for the next one, or raise it",
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LiveSessions => f.write_str("live sessions"),
            Self::RecordedSessions => f.write_str("recorded sessions"),
            Self::DiskBytes => f.write_str("bytes on the disk"),
            Self::Inodes => f.write_str("files on the disk"),
            Self::Tokens(period) => write!(f, "tokens {period}"),
            Self::Cost(period) => write!(f, "millionths of a dollar {period}"),
        }
    }
}

/// A tenant has as much of something as it may, or what it asks for does not fit. Nothing was begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tenant `{tenant}` may have {limit} {quota}, and {}; {}",
    if *.limit == 0 { "that is none".to_owned() } else { format!("it would come to {current}") },
    quota.hint()
)]
#[non_exhaustive]
pub struct QuotaExceeded {
    /// Of what.
    pub quota: Quota,
    /// Whose.
    pub tenant: TenantId,
    /// How much it may have.
    pub limit: u64,
    /// How much it would come to.
    pub current: u64,
}

impl QuotaExceeded {
    /// So much, where less is allowed.
    #[must_use]
    pub const fn new(tenant: TenantId, quota: Quota, limit: u64, current: u64) -> Self {
        Self { quota, tenant, limit, current }
    }

    /// Whether it may fit a little later, with nothing changed.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self.quota, Quota::LiveSessions) && self.limit > 0
    }
}

/// What a tenant may have in the tree, and how its sessions are treated there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantLimits {
    /// How many of its sessions may be live at a time; those that are put away do not count. 0: none ever.
    pub live_sessions: u64,
    /// How many of its sessions may be recorded, in all. 0: none ever.
    pub recorded_sessions: u64,
    /// How many messages may wait for their turn, in each session. 0: none ever.
    pub queued_messages: usize,
    /// When an idle session is put away; `None`: as the runtime's options say.
    pub idle_after: Option<Duration>,
    /// What its model calls may come to.
    pub budget: Budget,
}

impl Default for TenantLimits {
    /// Whatever it likes.
    fn default() -> Self {
        Self {
            live_sessions: u64::MAX,
            recorded_sessions: u64::MAX,
            queued_messages: usize::MAX,
            idle_after: None,
            budget: Budget::default(),
        }
    }
}
