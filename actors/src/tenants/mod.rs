//! The limits of tenants: live and recorded sessions, queued messages, and the budget of model calls.
//!
//! The embedder sets [`TenantLimits`] at any time. Each tenant has an account that its sessions use. The account counts
//! live sessions and keeps the tenant's [`Budget`] over all of them. Spending is in the journal's counters, which
//! change in the transaction that records a response, or separately for an aborted call. Estimates of running calls are
//! reserved in memory.

mod account_registry;
mod budget;
mod budget_check;
mod counter_names;
mod partial_usage;
mod pending_charges;
mod quota;

mod budgeted_model;
mod charges;
mod reservation;
mod tenant_account;
mod tenant_accounts;

pub(crate) use budget::Spend;
pub(crate) use budgeted_model::{BudgetedModel, estimate};
pub(crate) use pending_charges::is_undone;
pub(crate) use tenant_account::{LiveSessionGuard, LogGuard, ReserveError, TenantAccount};

pub use budget::{Allowance, Budget, CostLimit, Period, Price};
pub use counter_names::past_counters;
pub use quota::{Quota, QuotaExceeded, Spent, TenantLimits, TenantStatus};
pub use tenant_accounts::TenantAccounts;
