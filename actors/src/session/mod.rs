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
mod audit;
mod away;
mod branch;
mod bringing;
mod hub;
mod lease;
mod ledger;
mod mail;
mod pace;
mod producing;
mod redaction;
mod retry;
mod shared;
mod uploading;
mod work;

pub(crate) use ledger::encoded;
pub(crate) use mail::{Mail, Parcel};
pub(crate) use shared::{Forget, Shared, lock};

pub use error::SessionError;
pub use handle::{Input, Session};
pub use ledger::{EVENT_KIND, JournalLedger};
pub use message::{Answer, SessionMessage, SessionSnapshot, SessionStatus};
pub use redaction::{redact_event, redact_stop};
pub use spec::{Fitting, Outfit, Resume, SessionOptions, SessionParts, Setting};
pub use subscription::{Accepted, Subscription, Turn, TurnEvent, Update};
