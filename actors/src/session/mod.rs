//! A session: a conversation that has one owner at a time, is durable, and can be spoken to from many places.
//!
//! [`Session`] is its handle. The actor behind it owns the conversation, or has sent it on an errand: a task that records
//! commands in the journal and drives turns. What the handle promises: a message that was acknowledged is recorded, and a
//! turn that was under way when anything ended goes on from what is recorded, repeating no effect.

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
mod redaction;
mod revival;
mod running_task;
mod session_entry;
mod session_observer;
mod session_projection;
mod turn_duration;
mod turn_outputs;

pub(crate) use actor_message::{ActorMessage, ReturnableRequest};
pub(crate) use journal_event_log::encoded;
pub(crate) use session_entry::{OnDropFn, SessionEntry, lock};

pub use error::SessionError;
pub use handle::{Input, Session};
pub use journal_event_log::{EVENT_KIND, JournalEventLog};
pub use message::{ReplyTo, SessionRequest, SessionSnapshot, SessionStatus};
pub use redaction::{redact_event, redact_stop};
pub use spec::{
    ModelSetup, Resume, SessionComponents, SessionFactory, SessionOptions, SessionServices, SessionSetup,
};
pub use subscription::{Accepted, Answer, Subscription, TurnEvent, TurnHandle, Update};
