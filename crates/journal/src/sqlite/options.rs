//! The options of a journal in SQLite.

use std::time::Duration;

/// The options of a journal in SQLite.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The size in bytes above which a body is stored in the store of its tenant, each content once.
    pub blob_threshold: usize,
    /// The largest body, in bytes.
    pub max_body: usize,
    /// The maximum number of calls that wait in each queue, for writing and for reading. Beyond it calls fail as `Overloaded`.
    pub queue: usize,
    /// The maximum number of waiting calls of one tenant. A tenant may also not use more places than remain free, so there is
    /// always space for others.
    pub queue_per_tenant: usize,
    /// The maximum number of waiting bytes of bodies.
    pub queue_bytes: usize,
    /// The maximum number of waiting bytes of one tenant's bodies. It may also not be more than the bytes that remain free. A
    /// single call may be larger if the tenant has no other waiting bodies. It then counts as this many bytes in the total.
    pub queue_bytes_per_tenant: usize,
    /// The maximum number of calls in one transaction.
    pub batch: usize,
    /// The maximum number of bytes of bodies in one transaction of several calls.
    pub batch_bytes: usize,
    /// The number of reader threads.
    pub readers: usize,
    /// How long a call waits for another process's lock on the database.
    pub busy_timeout: Duration,
    /// The size limit of the database in bytes, without large bodies and the WAL; `None`: SQLite's own limit. Beyond it, appends fail as
    /// `DiskFull`.
    pub max_bytes: Option<u64>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            blob_threshold: 64 << 10,
            max_body: 64 << 20,
            queue: 4_096,
            queue_per_tenant: 1_024,
            queue_bytes: 128 << 20,
            queue_bytes_per_tenant: 32 << 20,
            batch: 256,
            batch_bytes: 4 << 20,
            readers: 2,
            busy_timeout: Duration::from_secs(5),
            max_bytes: None,
        }
    }
}
