//! Reading sessions and their events.

pub(crate) mod event_reader;
pub(super) mod known_session;
pub(crate) mod session_reader;
