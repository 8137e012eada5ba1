//! The journal in the tree: an actor that owns it and reopens it when it is lost, and a handle for everyone else.

mod actor;
mod handle;
mod supervised_records;

pub(crate) use handle::JournalCallError;

pub use actor::{OpenJournal, journal_actor};
pub use handle::{JournalHandle, JournalMessage, JournalUnavailable};
pub use supervised_records::SupervisedRecords;
