//! Remote cleanup: files of deleted sessions and tenants are deleted at their model's service.

pub(crate) mod deletion;
mod killed;
mod refused;
mod session_in_use;
mod skills;
