//! The journal in the tree: an actor that owns it and opens it again when it is lost, and a handle for its callers.

mod actor;
mod handle;
mod supervised_records;

pub(crate) use handle::JournalCallError;

pub use actor::{OpenJournal, journal_actor};
pub use handle::{JournalHandle, JournalMessage, JournalUnavailable};
pub use supervised_records::SupervisedRecords;
