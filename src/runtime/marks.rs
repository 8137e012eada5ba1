//! Which sessions of a tenant are being opened or deleted, noted on the disk before anything of it is done.
//!
//! ```text
//! <tenant>/under-way/SESSION    empty
//! ```
//!
//! State: these files. One that nobody removed tells the next start that it broke off there (`broken_off`), whoever's crash or
//! failure it was: so what is swept is what was begun and not ended, and never what only seems to belong to nobody.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use conjure_base::SessionId;

/// The marks of a tenant.
#[derive(Debug, Clone)]
pub(crate) struct Marks {
    folder: PathBuf,
}

impl Marks {
    /// The marks in a tenant's folder. Looks for nothing.
    pub(crate) fn of(tenant: &Path) -> Self {
        Self { folder: tenant.join("under-way") }
    }

    /// Where they lie.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Notes that something is done with this session. Blocks.
    pub(crate) fn set(&self, session: SessionId) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let path = self.folder.join(session.to_string());
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map(drop)
    }

    /// It was done. Blocks.
    pub(crate) fn clear(&self, session: SessionId) {
        let path = self.folder.join(session.to_string());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(path = %path.display(), %error, "a mark is left; the next start looks after it");
            }
            _ => {}
        }
    }

    /// Whether nobody has one. Blocks.
    pub(crate) fn is_empty(&self) -> bool {
        fs::read_dir(&self.folder).is_ok_and(|mut entries| entries.next().is_none()) || !self.folder.exists()
    }

    /// The sessions that have one. Blocks.
    pub(crate) fn all(&self) -> io::Result<Vec<SessionId>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<SessionId>().ok()));
        }
        Ok(found)
    }
}
