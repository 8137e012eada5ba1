//! Session events: what the embedder and its users see of a session.
//!
//! They are derived from the recorded events alone, so a replay shows what the live session showed. Each is one line of
//! JSON ([`SessionEvent::to_line`]), in which content blocks stay raw.

mod convert;
mod types;

pub use convert::session_events;
pub use types::{SESSION_EVENT_SCHEMA, SessionEvent, SessionEventKind, SessionStopReason};
