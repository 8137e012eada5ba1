//! The journal in the tree: an actor that owns it and opens it anew when it is lost, and the way to it for everybody else.

mod access;
mod actor;

pub(crate) use access::CallFailure;
pub use access::{JournalAccess, Waited};
pub use actor::{JournalMessage, OpenJournal, journal_actor};
