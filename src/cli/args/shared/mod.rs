//! Options that several commands share.

pub(super) mod format;
pub(super) mod keys;
pub(super) mod mcp_servers;
pub(super) mod new_session;
pub(super) mod values;
