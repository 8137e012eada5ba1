//! The routes of vaults and credentials.

pub(super) mod credentials;
pub(super) mod vaults;
