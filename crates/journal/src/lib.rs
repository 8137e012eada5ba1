//! The durable log of sessions: append-only events with sequence and epoch.
//! A [`Journal`] stores the event logs of many tenants' sessions. It does not interpret events: an event has a kind, a version and a body
//! of bytes. All implementations give the same guarantees, and one test suite checks them (feature `conformance`):
//!
//! - **Durability**: acknowledged events survive any crash, in order and without gaps.
//! - **Atomicity**: an append stores all of its events or none, at the sequence number that the writer expected, under its epoch
//!   ([`Journal::append`]). A dropped future may have appended all or nothing.
//! - **Counters**: an append may increment counters of its tenant in the same transaction ([`Journal::append_with_counters`]).
//! - **Rows**: an append may store a row of its session in the same transaction, by which sessions are listed ([`Journal::append_batch`]).
//! - **One writer at a time**: each lease has a new epoch, which makes the earlier one stale ([`Journal::acquire_lease`]).
//! - **Tenant isolation**: every call names a tenant with the session, and never finds data of another tenant. Waiting calls share the
//!   journal by their tenants' weights ([`Journal::set_weights`]).
//!
//! [`Records`] are in the same database: small rows that are no events, written by compare-and-set and found by name and index.
//!
//! [`MemoryJournal`] is in memory. `SqliteJournal` (feature `sqlite`) has one database in a directory. Large bodies are in a
//! content-addressed store of their tenant beside it.
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
//! let page = journal.read(&key, 0, PageLimit::default()).await?;
//! assert_eq!(page.events[0].body, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod counter;
mod error;
mod event;
mod key;
mod lease;
mod session;
mod session_query;
mod session_row;
mod tenant_weights;

mod journal;

mod memory;
mod record;

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use counter::{CounterIncrement, MAX_COUNT, MAX_COUNTER_NAME_BYTES};
pub use error::{DamagedPart, FoundInstead, JournalError, JournalErrorKind};
pub use event::{EventPage, MAX_KIND_BYTES, NewEvent, PageLimit, ROW_BYTES, RecordedEvent};
pub use journal::{Journal, JournalFuture, SweepReport, read_all};
pub use key::{Epoch, SessionKey};
pub use lease::{Lease, LeaseOwner, LeaseOwnerError};
pub use memory::MemoryJournal;
pub use record::{
    Direction, IndexName, IndexValue, Indexes, MAX_INDEX_TEXT_BYTES, MAX_INDEXES, MAX_RECORD_BYTES,
    MAX_RECORD_ID_BYTES, MAX_RECORD_TEXT_BYTES, MAX_UNIQUE_NAME_BYTES, MAX_WRITES, MemoryRecords, NewRecord,
    Record, RecordContent, RecordCursor, RecordError, RecordErrorKind, RecordFuture, RecordKey, RecordKind,
    RecordNameError, RecordOrder, RecordPage, RecordQuery, RecordScope, RecordWrite, Records,
};
pub use session::{ListCursor, SessionInfo, SessionPage, Snapshot};
pub use session_query::{RunningPage, SessionQuery};
pub use session_row::{AppendBatch, MAX_SESSION_ROW_BYTES, RowStatus, SessionRow};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteJournal, SqliteOptions};
pub use tenant_weights::TenantWeights;
