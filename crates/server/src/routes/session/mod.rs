//! The routes of sessions, their events and resources.

pub(super) mod event_stream;
pub(super) mod resources;
pub(super) mod session_events;
pub(super) mod sessions;
