//! Tenants, as a host sees them: what each may have, what each has, and how one is deleted with everything of theirs.

mod meter;
mod metered;
mod policies;
mod policy;
mod usage;

mod deleting;
mod gone;

pub(crate) use gone::{Gone, complete_tenants};
pub(crate) use meter::{Freshness, Meters};
pub(crate) use metered::MeteredSource;
pub(crate) use policies::Policies;

pub use meter::DiskUsage;
pub use policy::TenantPolicy;
pub use usage::{Tenant, TenantUsage};
