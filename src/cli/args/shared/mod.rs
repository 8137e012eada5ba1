//! Options that several commands share.

pub(super) mod format;
pub(super) mod keys;
pub(super) mod mcp_servers;
pub(super) mod open;
pub(super) mod values;
