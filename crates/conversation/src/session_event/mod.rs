//! Session events: the events of a session that the embedder and its users see.
//!
//! They are derived from the recorded events alone, so a replay shows the same events as the live session. Each is one line of JSON
//! ([`SessionEvent::to_line`]), in which content blocks stay raw.

mod convert;
mod event_id;
mod listed;
mod projection;
mod stop_reason;
mod times;
mod types;

pub use event_id::{EventId, EventIdError};
pub use listed::merge_events;
pub use projection::EventProjection;
pub use stop_reason::{EvaluatedPermission, RequiredAction, RequiredNeed, SessionStopReason};
pub use types::{SESSION_EVENT_SCHEMA, SessionEvent, SessionEventKind};
