//! How a journal in SQLite is opened.

use std::time::Duration;

/// How a journal in SQLite is opened.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// Bodies of more bytes than this are kept in the store of their tenant, each content once.
    pub blob_threshold: usize,
    /// The most bytes of one body.
    pub largest_body: usize,
    /// The most calls that wait to be written, and to be read. Beyond it they are refused as `Overloaded`.
    pub queue: usize,
    /// The most calls of one tenant that wait, and no more than may still wait besides: there is always a place for a tenant that
    /// has less.
    pub queue_per_tenant: usize,
    /// The most bytes of bodies that wait to be written.
    pub queue_bytes: usize,
    /// The most bytes of one tenant's bodies that wait, and no more than may still wait besides. A single call may have more when
    /// the tenant has no other bodies waiting, and counts as so many among those of all tenants.
    pub queue_bytes_per_tenant: usize,
    /// The most calls in one transaction.
    pub group: usize,
    /// The most bytes of bodies in one transaction of more than one call: others wait for no more.
    pub group_bytes: usize,
    /// How many threads read.
    pub readers: usize,
    /// How long another process that holds the database is waited for.
    pub busy_timeout: Duration,
    /// The most bytes of the database, without large bodies and what waits to be merged into it; `None` is SQLite's own
    /// limit. Beyond it, appends fail as `DiskFull`.
    pub max_bytes: Option<u64>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            blob_threshold: 64 << 10,
            largest_body: 64 << 20,
            queue: 4_096,
            queue_per_tenant: 1_024,
            queue_bytes: 128 << 20,
            queue_bytes_per_tenant: 32 << 20,
            group: 256,
            group_bytes: 4 << 20,
            readers: 2,
            busy_timeout: Duration::from_secs(5),
            max_bytes: None,
        }
    }
}
