//! The routes: one file for each kind of object. [`route_table`] lists them.

mod probes;
mod route;
mod table;

pub(crate) use table::all;
pub use table::{RouteInfo, route_table};
