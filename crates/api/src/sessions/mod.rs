//! Sessions: their settings, events and resources.

pub(crate) mod client_event;
pub(crate) mod content;
pub(crate) mod event;
pub(crate) mod resource;
pub(crate) mod session;
pub(crate) mod session_error;
