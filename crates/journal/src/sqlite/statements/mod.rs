//! The SQL of each operation.

pub(super) mod blobs;
pub(super) mod counters;
pub(super) mod garbage;
pub(super) mod leases;
pub(super) mod lists;
pub(super) mod record_query;
pub(super) mod records;
pub(super) mod rows;
pub(super) mod transaction;
