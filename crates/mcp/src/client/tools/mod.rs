//! The tools of servers: how they are listed, named, found and offered, and what becomes of their results.

pub(in crate::client) mod listing;
pub(in crate::client) mod output_schema;
pub(in crate::client) mod result;
pub(in crate::client) mod search;
pub(in crate::client) mod server_tool;
pub(in crate::client) mod tool_names;
