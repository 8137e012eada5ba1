//! The file in which the tools of a server are kept for later sessions: a cache, which may be removed at any time.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::client::tools::listing::Listing;
use crate::config::McpServerSpec;

/// Larger than any manifest that is written.
const MAX_BYTES: u64 = 80 << 20;

#[derive(Serialize, Deserialize)]
struct Manifest {
    /// Whose tools they are.
    server: String,
    listing: Listing,
}

/// The tools that are kept for this server. `None` when there are none, or those of another program.
pub(super) fn read(path: &Path, spec: &McpServerSpec) -> Option<Listing> {
    if std::fs::metadata(path).ok()?.len() > MAX_BYTES {
        return None;
    }
    let manifest: Manifest = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    (manifest.server == spec.identity().to_hex()).then_some(manifest.listing)
}

/// Keeps these tools for later sessions.
pub(super) fn write(path: &Path, spec: &McpServerSpec, listing: &Listing) -> std::io::Result<()> {
    let manifest = Manifest { server: spec.identity().to_hex(), listing: listing.clone() };
    let bytes = serde_json::to_vec(&manifest)?;
    let Some(folder) = path.parent() else { return Ok(()) };
    std::fs::create_dir_all(folder)?;
    // A reader never sees a half of it.
    let number = conjure_base::random_bits()?;
    let staged = path.with_extension(format!("{number:x}"));
    std::fs::write(&staged, bytes)?;
    std::fs::rename(&staged, path).inspect_err(|_| {
        let _ = std::fs::remove_file(&staged);
    })
}
