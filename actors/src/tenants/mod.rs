//! What a tenant may have in the tree: live sessions, recorded ones, messages that wait, and what its model calls may cost.
//!
//! A host says so by [`Terms`], at any time. Each tenant has an account, through which its sessions go: it counts those that are
//! live, and keeps the tenant's [`Budget`] over all of them. What was spent is in the journal's counters, changed in the same
//! transaction as the answer that is paid for, or by themselves for a call that was broken off; what calls that are under way may
//! come to is reserved in memory.

mod budget;
mod calendar;
mod debts;
mod heard;
mod purse;
mod quota;
mod terms;

mod account;
mod model;
mod tenancy;

pub(crate) use account::{Account, Holder, NotReserved, Present};
pub(crate) use budget::Amount;
pub(crate) use debts::is_undone;
pub(crate) use model::{BudgetedModel, estimate};

pub use budget::{Allowance, Budget, Money, Period, Price};
pub use calendar::past_counters;
pub use quota::{Quota, QuotaExceeded};
pub use tenancy::{Spent, Standing, Tenancy};
pub use terms::Terms;
