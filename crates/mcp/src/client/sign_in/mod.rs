//! Sign-ins at servers over HTTP, and the resulting tokens.

pub(in crate::client) mod authorization;
pub(in crate::client) mod login;
pub(in crate::client) mod oauth;
