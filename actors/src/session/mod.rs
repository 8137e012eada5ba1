//! A session: a durable conversation with one owner at a time and any number of clients.
//!
//! [`Session`] is its handle. The actor behind it owns the conversation, or has moved it to a task that records
//! commands in the journal and drives turns. The handle guarantees two things. An acknowledged message is recorded. And
//! a turn that was running when anything ended continues from what is recorded, and repeats no effect.

mod error;
mod message;
mod spec;
mod subscription;

mod handle;

mod actor;
mod actor_message;
mod artifact_upload;
mod audit;
mod child_spec;
mod context_limit;
mod conversation_task;
mod copy_out;
mod event_hub;
mod journal_event_log;
mod journal_retry;
mod lease;
mod model_change;
mod pre_call_hooks;
mod redaction;
mod revival;
mod running_task;
mod session_entry;
mod session_observer;
mod session_projection;
mod session_row;
mod turn_duration;
mod turn_outputs;

pub(crate) use actor_message::{ActorMessage, ReturnableRequest};
pub(crate) use child_spec::session_child_spec;
pub(crate) use journal_event_log::encoded;
pub(crate) use session_entry::{OnDropFn, SessionEntry};

pub use error::{ReplyTo, SessionError};
pub use handle::{Input, Session};
pub use journal_event_log::{EVENT_KIND, JournalEventLog};
pub use message::{SessionRequest, SessionSnapshot, SessionStatus};
pub use redaction::{redact_event, redact_stop};
pub use session_row::{from_row, to_row};
pub use spec::{
    ModelSetup, Resume, SessionComponents, SessionFactory, SessionOptions, SessionServices, SessionSetup,
};
pub use subscription::{Accepted, Answer, Subscription, TurnEvent, TurnHandle, Update};
