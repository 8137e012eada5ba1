//! Operations on sessions.

pub(crate) mod delete_session;
pub(super) mod find_session;
pub(super) mod fork_session;
pub(super) mod open_session;
pub(super) mod read_session;
