//! Sign-ins at servers by HTTP, and the tokens that come of them.

pub(in crate::client) mod authorization;
pub(in crate::client) mod login;
pub(in crate::client) mod oauth;
