//! Tenants: their policies, their disk quotas and usage, and the deletion of a tenant with everything it has.

mod tenant_policies;
mod tenant_policy;

mod disk_measure;
mod disk_usage_cache;
mod space_reservations;
mod tenant_quota_executor;
mod usage_entry;
mod usage_roots;

mod usage;

mod delete_tenant;
mod deletion_intents;

pub(crate) use deletion_intents::{TenantDeletions, recover_tenant_deletions};
pub(crate) use disk_usage_cache::DiskUsageCache;
pub(crate) use space_reservations::TenantStoreQuota;
#[cfg(feature = "anthropic")]
pub(crate) use tenant_policies::TenantKey;
pub(crate) use tenant_policies::{Gates, TenantPolicies};
pub(crate) use tenant_quota_executor::TenantQuotaSource;

pub use disk_measure::DiskUsage;
pub use tenant_policy::TenantPolicy;
pub use usage::{Tenant, TenantUsage};
