//! The recorded events of a session, and their log.

pub(crate) mod call_outcome;
pub(crate) mod event;
pub(crate) mod event_log;
pub(crate) mod fork;
pub(crate) mod turn_stop;
