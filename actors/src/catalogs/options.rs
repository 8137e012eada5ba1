//! Options of the catalog registry, and why it did not load a catalog.

use std::time::Duration;

use super::catalog_key::CatalogKey;
use crate::supervision::CallError;

/// How the registry notices changes.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RegistryOptions {
    /// How long nothing must change before it loads; ten times that, it waits at most.
    pub debounce: Duration,
    /// How often it looks at catalogs whose folders it cannot watch, or not all.
    pub rescan_interval: Duration,
    /// How many folders it watches at most; the system has a limit, too, for all of a user's programs together.
    pub max_watches: usize,
}

impl Default for RegistryOptions {
    /// 100 ms, 10 s, 50,000 folders.
    fn default() -> Self {
        Self {
            debounce: Duration::from_millis(100),
            rescan_interval: Duration::from_secs(10),
            max_watches: 50_000,
        }
    }
}

/// Why a catalog was not loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Nobody registered it, or not any more.
    #[error("there is no catalog `{0}`; register it first")]
    NotFound(CatalogKey),
    /// Looking at its files failed by a defect. The snapshot of before stays.
    #[error("the loading of catalog `{0}` broke off")]
    BrokeOff(CatalogKey),
    /// The registry did not answer. What was asked for may still happen.
    #[error("the registry did not answer: {0}")]
    Call(#[from] CallError),
}
