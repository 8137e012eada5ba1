//! How a session's actor starts, is addressed, and ends.

pub(super) mod actor_message;
pub(super) mod child_spec;
pub(super) mod model_change;
pub(super) mod revival;
pub(super) mod session_entry;
