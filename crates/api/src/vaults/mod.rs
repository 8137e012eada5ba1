//! Vaults and the credentials in them.

pub(crate) mod credential;
pub(crate) mod vault;
