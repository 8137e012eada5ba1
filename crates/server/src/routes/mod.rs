//! The routes: one file for each kind of object. [`route_table`] lists them.

mod agents;
mod credentials;
mod environments;
mod event_stream;
mod files;
#[cfg(feature = "mcp")]
mod mcp;
mod messages;
mod models;
mod openapi;
mod probes;
mod resources;
mod route;
mod session_events;
mod sessions;
mod skills;
mod table;
mod vaults;

pub(crate) use table::all;
pub use table::{RouteInfo, route_table};
