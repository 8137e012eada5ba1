//! Where events are recorded before the driver goes on.

/// Why a ledger could not record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the ledger did not record: {reason}")]
pub struct LedgerError {
    /// What happened.
    pub reason: String,
}

/// Records events. What `append` has acknowledged is never lost; what it has not may or may not be there.
pub trait Ledger: Send + Sync {}
