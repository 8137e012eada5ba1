//! What every room of Conjure speaks of: ids, digests, deadlines, the clock and the redactor.
//!
//! Small and closed: a type belongs here only when rooms on different floors must agree on it. Nothing in
//! here does I/O but [`SystemClock`], which reads the machine's clock, and the id constructors named
//! `random`, which read its entropy.

mod clock;
mod deadline;
mod deceptive;
mod digest;
mod id;
mod redactor;
mod timestamp;

pub use clock::{Clock, SystemClock};
pub use deadline::Deadline;
pub use deceptive::{judged, without_deceptive};
pub use digest::{Digest, DigestError, DigestHasher};
pub use id::{CallId, ContainerId, IdError, SessionId, TenantId, TurnId};
pub use redactor::{Redactor, SHORTEST_SECRET, looks_sensitive};
pub use timestamp::Timestamp;
