//! The durable log of sessions: append-only events with sequence and epoch.
//!
//! A [`Journal`] records what happened in the sessions of many tenants. It does not know what events mean: an event has a
//! kind, a version and a body of bytes. What it promises is the same for every implementation, and checked by one suite
//! (`conformance`, a feature):
//!
//! - **What was acknowledged is there**, after any crash, in its order, without a hole.
//! - **All of an append or nothing**, at the sequence that the writer expected, under the epoch that it holds
//!   ([`Journal::append`]). A dropped future may have appended or not, never a part.
//! - **What is used is counted with what was done**: an append may charge counters of its tenant, in the same transaction
//!   ([`Journal::append_charged`]).
//! - **One writer at a time**: a lease gives an epoch, and the next one makes the former stale ([`Journal::acquire`]).
//! - **Tenants share nothing**: every call names a tenant with the session, and what belongs to another tenant is not found.
//!   Where their calls wait for each other, each has its part by its weight ([`Journal::set_weights`]).
//!
//! [`MemoryJournal`] forgets with its process. `SqliteJournal` (feature `sqlite`) keeps one database in a folder, and
//! large bodies in a content-addressed store of their tenant beside it.
//!
//! ```
//! use conjure_base::{SessionId, TenantId};
//! use conjure_journal::{Epoch, Journal, MemoryJournal, NewEvent, PageLimit, SessionKey};
//!
//! # futures_util::FutureExt::now_or_never(async {
//! let journal = MemoryJournal::new();
//! let key = SessionKey::new(TenantId::new("acme")?, SessionId::random()?);
//! journal.create(&key).await?;
//! let events = vec![NewEvent::new("greeting", 1, b"hello".to_vec())];
//! assert_eq!(journal.append(&key, 0, Epoch::NONE, events).await?, 1);
//! let page = journal.load(&key, 0, PageLimit::default()).await?;
//! assert_eq!(page.events[0].body, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod charge;
mod error;
mod event;
mod key;
mod lease;
mod session;
mod snapshot;
mod weights;

mod journal;

mod memory;
mod upcast;

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use charge::{Charge, LARGEST_COUNT, LONGEST_COUNTER};
pub use error::{Found, JournalError, JournalErrorKind, Place};
pub use event::{EventPage, LONGEST_KIND, NewEvent, PageLimit, ROW_BYTES, Recorded};
pub use journal::{Journal, Reply, Swept, load_all};
pub use key::{Epoch, SessionKey};
pub use lease::{Lease, Owner};
pub use memory::MemoryJournal;
pub use session::{ListCursor, SessionInfo, SessionPage};
pub use snapshot::Snapshot;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteJournal, SqliteOptions};
pub use upcast::{Upcasting, Upcasts};
pub use weights::Weights;
