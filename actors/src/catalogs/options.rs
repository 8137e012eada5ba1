//! The options and errors of the catalog registry.

use std::time::Duration;

use super::catalog_key::CatalogKey;
use crate::supervision::CallError;

/// How the registry notices changes.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RegistryOptions {
    /// How long files must be unchanged before a load. After the first change, the registry waits at most ten times as
    /// long.
    pub debounce: Duration,
    /// How often the registry scans catalogs whose directories it cannot watch completely.
    pub rescan_interval: Duration,
    /// The maximum number of watched directories. The operating system has a limit as well, for all programs of a user
    /// together.
    pub max_watches: usize,
}

impl Default for RegistryOptions {
    /// A debounce of 100 ms, a scan every 10 s, 50,000 directories.
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
    /// No such catalog is registered.
    #[error("there is no catalog `{0}`; register it first")]
    NotFound(CatalogKey),
    /// The load panicked, which is a defect. The last snapshot stays published.
    #[error("loading catalog `{0}` panicked; this is a defect")]
    LoadPanicked(CatalogKey),
    /// The registry did not answer. It may still carry out the request.
    #[error("the registry did not answer: {0}")]
    Call(#[from] CallError),
}
