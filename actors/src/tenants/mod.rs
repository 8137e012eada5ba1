//! What a tenant may have in the tree: live sessions, recorded ones, messages that wait, and what its model calls may cost.
//!
//! A host says so by [`TenantLimits`], at any time. Each tenant has an account, through which its sessions go: it counts those that are
//! live, and keeps the tenant's [`Budget`] over all of them. What was spent is in the journal's counters, changed in the same
//! transaction as the answer that is paid for, or by themselves for a call that was broken off; what calls that are under way may
//! come to is reserved in memory.

mod budget;
mod budget_state;
mod counter_names;
mod partial_usage;
mod pending_charges;
mod quota;

mod budgeted_model;
mod reservation;
mod tenant_account;
mod tenant_accounts;

pub(crate) use budget::Spend;
pub(crate) use budgeted_model::{BudgetedModel, estimate};
pub(crate) use pending_charges::is_undone;
pub(crate) use tenant_account::{LiveSessionGuard, LogGuard, ReserveError, TenantAccount};

pub use budget::{Allowance, Budget, CostLimit, Period, Price};
pub use counter_names::past_counters;
pub use quota::{Quota, QuotaExceeded, TenantLimits};
pub use tenant_accounts::{Spent, TenantAccounts, TenantStatus};
