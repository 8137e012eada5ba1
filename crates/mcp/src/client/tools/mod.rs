//! The tools of servers: listing, naming, search, definitions and results.

pub(in crate::client) mod listing;
pub(crate) mod output_schema;
pub(in crate::client) mod result;
pub(in crate::client) mod search;
pub(in crate::client) mod server_tool;
pub(in crate::client) mod session_tools;
pub(in crate::client) mod tool_names;
