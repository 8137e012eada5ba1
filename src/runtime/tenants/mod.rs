//! Tenants, as a host sees them: what each may have, what each has, and how one is deleted with everything of theirs.

mod meter;
mod metered;
mod places;
mod policies;
mod policy;
mod room;
mod usage;

mod deleting;
mod gone;

pub(crate) use gone::{Gone, complete_tenants};
pub(crate) use meter::{Freshness, Meters};
pub(crate) use metered::MeteredSource;
#[cfg(feature = "anthropic")]
pub(crate) use policies::OwnKey;
pub(crate) use policies::{Gates, Policies};
pub(crate) use room::MeteredRoom;

pub use meter::DiskUsage;
pub use policy::TenantPolicy;
pub use usage::{Tenant, TenantUsage};
