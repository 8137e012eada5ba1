//! The methods of [`Runtime`](super::Runtime) that work on one session: opening, finding, reading and deleting it.

pub(super) mod delete_session;
mod find_session;
mod fork_session;
mod models;
mod open_session;
mod read_session;
mod records;
