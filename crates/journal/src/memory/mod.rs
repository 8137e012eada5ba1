//! The journal in memory: for tests, and for sessions that end with their process.

mod memory_journal;
mod memory_session;

pub use memory_journal::MemoryJournal;
