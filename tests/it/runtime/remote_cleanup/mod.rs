//! What sessions and tenants leave at their model's service is deleted there.

pub(crate) mod deletion;
mod killed;
mod refused;
mod skills;
mod used;
