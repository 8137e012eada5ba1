//! The file that stores the tools of a server for later sessions. It is a cache, so it may be deleted at any time.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::client::tools::listing::Listing;
use crate::config::McpServerSpec;

/// The maximum size of the file. It is larger than any manifest that is written.
const MAX_BYTES: u64 = 80 << 20;

#[derive(Serialize, Deserialize)]
struct Manifest {
    /// The digest that identifies the server.
    server: String,
    listing: Listing,
}

/// Reads the stored tools of this server. `None` if there are none, or if they belong to another program.
pub(super) fn read(path: &Path, spec: &McpServerSpec) -> Option<Listing> {
    if std::fs::metadata(path).ok()?.len() > MAX_BYTES {
        return None;
    }
    let manifest: Manifest = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    (manifest.server == spec.identity().to_hex()).then_some(manifest.listing)
}

/// Stores these tools for later sessions.
pub(super) fn write(path: &Path, spec: &McpServerSpec, listing: &Listing) -> std::io::Result<()> {
    let manifest = Manifest { server: spec.identity().to_hex(), listing: listing.clone() };
    let bytes = serde_json::to_vec(&manifest)?;
    let Some(dir) = path.parent() else { return Ok(()) };
    std::fs::create_dir_all(dir)?;
    // The file is written aside and renamed, so a reader never sees a partial file.
    let number = conjure_base::random_bits()?;
    let staged = path.with_extension(format!("{number:x}"));
    std::fs::write(&staged, bytes)?;
    std::fs::rename(&staged, path).inspect_err(|_| {
        let _ = std::fs::remove_file(&staged);
    })
}
