//! The SQLite journal: one database, with large bodies in a store of their tenant beside it.
//! One thread writes: it takes the waiting calls as a batch, runs them in one transaction, and acknowledges all with one disk flush. A few
//! threads read, each with its own connection. Calls wait in bounded queues that are fair to tenants by their weights.
//!
//! On the disk:
//!
//! ```text
//! DIR/journal.sqlite       the database; its `-wal` and `-shm` beside it while it is open, and after a crash
//! DIR/lock                 held while a process opens the journal
//! DIR/blobs/TENANT/…       a store for each tenant, for bodies beyond a threshold
//! ```

mod database;
mod options;
mod queue;
mod statements;

mod journal;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub use journal::SqliteJournal;
pub use options::SqliteOptions;
