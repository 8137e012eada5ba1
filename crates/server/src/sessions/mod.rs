//! Sessions of the API: their rows, their specifications for the runtime, and their representation for clients.

mod create;
mod interaction;
mod network;
mod outputs;
mod profile;
mod resources;
mod row;
mod skills;
mod store;
mod sweep;
mod view;

pub(crate) use create::create;
pub(crate) use interaction::send;
pub(crate) use outputs::{collect_outputs, delete_without_row};
pub(crate) use profile::{client_tools, cost_micros};
pub(crate) use resources::{new_resource, put_resource, remove_resource};
pub(crate) use row::SessionRow;
pub(crate) use store::{SessionStore, StoredSession};
pub(crate) use sweep::sweep;
pub(crate) use view::show;
