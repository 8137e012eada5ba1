//! The journal in one SQLite database, with large bodies in a store of their tenant beside it.
//!
//! One thread writes: it takes what waits as one group, carries it out in one transaction, and acknowledges all of it
//! with one flush of the disk. A few threads read, each through a connection of its own, beside the writer. Calls wait
//! in bounded queues in which tenants take turns by their weights.
//!
//! On the disk:
//!
//! ```text
//! FOLDER/journal.sqlite       the database; its `-wal` and `-shm` beside it while it is open, and after a crash
//! FOLDER/lock                 held while a process opens the journal
//! FOLDER/blobs/TENANT/…       a store for each tenant: bodies beyond a threshold
//! ```

mod options;

mod fault;
mod queue;
mod schema;
mod site;
mod turns;

mod blobs;
mod counters;
mod garbage;
mod job;
mod leases;
mod lists;
mod rows;
mod tables;

mod journal;
mod open;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub use journal::SqliteJournal;
pub use options::SqliteOptions;
