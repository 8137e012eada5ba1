//! Intent records of the sessions that are being opened or deleted. Each record is written before its operation changes
//! anything.
//!
//! ```text
//! <tenant>/pending/SESSION    empty
//! ```
//!
//! State: these files. If a record was not removed, the next start knows that the operation was interrupted
//! (`recover_intents`). So it sweeps only operations that were started and not finished, and nothing that merely seems unused.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use conjure_base::SessionId;
use conjure_fs::{ensure_dir, ensure_file, ignore_absent, names_in};

/// The intent records of a tenant.
#[derive(Debug, Clone)]
pub(crate) struct SessionIntents {
    dir: PathBuf,
}

impl SessionIntents {
    /// The intent records in a tenant's directory. Reads nothing.
    pub(crate) fn new(tenant: &Path) -> Self {
        Self { dir: tenant.join("pending") }
    }

    /// The directory of the records.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes the intent record of this session. Blocks.
    pub(crate) fn set(&self, session: SessionId) -> io::Result<()> {
        ensure_dir(&self.dir)?;
        ensure_file(&self.dir.join(session.stored_name()))
    }

    /// Removes the intent record of this session. Blocks.
    pub(crate) fn clear(&self, session: SessionId) {
        let path = self.dir.join(session.stored_name());
        if let Err(error) = ignore_absent(fs::remove_file(&path)) {
            tracing::debug!(path = %path.display(), %error, "an intent record was not removed; the next start recovers it");
        }
    }

    /// Whether there is no intent record. Blocks.
    pub(crate) fn is_empty(&self) -> bool {
        fs::read_dir(&self.dir).is_ok_and(|mut entries| entries.next().is_none()) || !self.dir.exists()
    }

    /// The sessions that have an intent record. Blocks.
    pub(crate) fn all(&self) -> io::Result<Vec<SessionId>> {
        Ok(names_in(&self.dir)?.iter().filter_map(|name| name.parse().ok()).collect())
    }
}
