//! Types and helpers that several crates of Conjure share: ids, digests, time, text, the redactor.
//!
//! Only types shared by several crates belong here. Nothing here does I/O, with two exceptions: [`SystemClock`] reads
//! the machine's clock, and the functions named `random` read its entropy.

mod backoff;
mod digest;
mod file_id;
mod id;
mod keyed_locks;
mod random;
mod redactor;
mod secret_detection;
mod sync;
pub mod text;
mod time;
mod timestamp;

pub use backoff::{Backoff, Jitter};
pub use digest::{Digest, DigestError, DigestHasher};
pub use file_id::{FileFingerprint, FileId, FileTime};
pub use id::{CallId, ContainerId, IdError, SessionId, TenantId, TurnId};
pub use keyed_locks::KeyedLocks;
pub use random::random_bits;
pub use redactor::{MIN_SECRET_BYTES, Redactor};
pub use secret_detection::is_sensitive_variable;
pub use sync::lock;
pub use time::{Clock, Deadline, SystemClock, TimedOut, with_deadline};
pub use timestamp::Timestamp;
