//! The quotas and limits of a tenant, and the error when one is exceeded.

use std::fmt;
use std::time::Duration;

use conjure_base::TenantId;
use conjure_conversation::Limit;

use super::budget::{Budget, BudgetResource, Period};

/// A resource of which a tenant may have a limited amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quota {
    /// Live sessions.
    LiveSessions,
    /// Recorded sessions, live or not.
    RecordedSessions,
    /// Bytes in its data directory.
    DiskBytes,
    /// Files and directories in its data directory.
    Inodes,
    /// Tokens in a period.
    Tokens(Period),
    /// Millionths of a dollar in a period.
    Cost(Period),
}

impl Quota {
    pub(crate) const fn of(resource: BudgetResource, period: Period) -> Self {
        match resource {
            BudgetResource::Tokens => Self::Tokens(period),
            BudgetResource::Cost => Self::Cost(period),
        }
    }

    /// The limit with which a turn ends.
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

/// A tenant's quota is used up, or the request does not fit in it. Nothing was started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tenant `{tenant}` may have {limit} {quota}, and {}; {}",
    if *.limit == 0 { "that is none".to_owned() } else { format!("it would come to {current}") },
    quota.hint()
)]
#[non_exhaustive]
pub struct QuotaExceeded {
    /// The exceeded quota.
    pub quota: Quota,
    /// The tenant.
    pub tenant: TenantId,
    /// The limit of the quota.
    pub limit: u64,
    /// The amount that the request would reach.
    pub current: u64,
}

impl QuotaExceeded {
    /// The error for a request that would reach `current` where only `limit` is allowed.
    #[must_use]
    pub const fn new(tenant: TenantId, quota: Quota, limit: u64, current: u64) -> Self {
        Self { quota, tenant, limit, current }
    }

    /// Whether the same request may fit later without any change.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self.quota, Quota::LiveSessions) && self.limit > 0
    }
}

/// The limits of a tenant in the tree, and how its sessions are treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantLimits {
    /// How many of its sessions may be live. Passivated ones do not count. 0: none.
    pub live_sessions: u64,
    /// How many of its sessions may be recorded in all. 0: none.
    pub recorded_sessions: u64,
    /// How many messages may be queued in each session. 0: none.
    pub queued_messages: usize,
    /// The idle time after which a session is passivated; `None`: that of the runtime's options.
    pub idle_after: Option<Duration>,
    /// The budget of its model calls.
    pub budget: Budget,
}

impl Default for TenantLimits {
    /// No limits.
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

/// The status of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantStatus {
    /// How many of its sessions are live here.
    pub live_sessions: u64,
    /// How many of its sessions are recorded by any process.
    pub recorded_sessions: u64,
    /// Its spending: tokens and cost, in all, this day and this month.
    pub spent: Vec<Spent>,
    /// The tokens that are reserved for model calls that run here.
    pub reserved_tokens: u64,
    /// The cost that is reserved for them, in millionths of a dollar.
    pub reserved_cost_micros: u64,
}

/// The spending of a resource in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spent {
    /// The resource.
    pub quota: Quota,
    /// The amount.
    pub used: u64,
    /// The limit; `None`: there is none.
    pub limit: Option<u64>,
}
