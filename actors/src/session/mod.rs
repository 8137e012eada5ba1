//! A session: a durable conversation with one owner at a time and any number of clients.
//!
//! [`Session`] is its handle. The session's actor owns the conversation. To change it, the actor moves it to a task,
//! which records commands in the journal and drives turns. The handle guarantees two things:
//!
//! - An acknowledged message is recorded.
//! - A turn that a crash or a stop interrupted continues from the recorded events, and repeats no side effect.

mod error;
mod event_redaction;
mod lifecycle;
mod log;
mod message;
mod spec;
mod subscription;
mod turn;
mod turn_handle;

mod handle;

mod actor;

pub(crate) use lifecycle::actor_message::{ActorMessage, ReturnableRequest};
pub(crate) use lifecycle::child_spec::session_child_spec;
pub(crate) use lifecycle::session_entry::{OnDropFn, SessionEntry};
pub(crate) use log::journal_event_log::{encoded, first_events};

pub use error::{ReplyTo, SessionError};
pub use event_redaction::{redact_event, redact_stop};
pub use handle::{Input, Session};
pub use log::journal_event_log::{EVENT_KIND, JournalEventLog};
pub use log::session_row::{from_row, to_row};
pub use message::{SessionRequest, SessionSnapshot, SessionStatus};
pub use spec::{
    ModelSetup, Resume, SessionComponents, SessionFactory, SessionOptions, SessionServices, SessionSetup,
};
pub use subscription::{Subscription, Update};
pub use turn_handle::{Accepted, Answer, TurnEvent, TurnHandle};
