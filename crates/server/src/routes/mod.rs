//! The routes: one file for each kind of object. [`route_table`] lists them.

mod agents;
mod call;
mod environments;
mod files;
#[cfg(feature = "mcp")]
mod mcp;
mod messages;
mod models;
mod openapi;
mod probes;
mod route;
mod session;
mod skills;
mod table;
mod vault;

pub(crate) use table::all;
pub use table::{RouteInfo, route_table};
