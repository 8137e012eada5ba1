//! Notes which directories of users were workspaces of sessions, in the directory of their tenant.
//!
//! Tools may have left links in such a directory. So whoever follows a path into it later must know that it is one. The notes stay when the
//! sessions are deleted, and end with the tenant.
//!
//! State: one symbolic link per directory in `user-workspaces`, named after the digest of its path. It is created in one step, so a crash
//! leaves no incomplete note.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use conjure_base::Digest;

/// The directory of all tenants in a data directory.
pub(crate) const TENANTS: &str = "tenants";

const NOTES: &str = "user-workspaces";

/// Notes a directory in which a session of this tenant will work. Blocks.
pub(crate) fn note_workspace(tenant_dir: &Path, workspace: &Path) -> io::Result<()> {
    let notes = tenant_dir.join(NOTES);
    conjure_fs::ensure_dir(&notes)?;
    match symlink(workspace, notes.join(Digest::of_bytes(workspace.as_os_str().as_bytes()).to_hex())) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The directories of users in which sessions worked whose runtimes had this data directory. Some may not exist any more. Sessions of other data
/// directories are not known here. Blocks.
#[must_use]
pub fn noted_workspaces(data: &Path) -> Vec<PathBuf> {
    let entries = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let notes = entries(data.join(TENANTS)).flat_map(|tenant| entries(tenant.path().join(NOTES)));
    notes.filter_map(|note| std::fs::read_link(note.path()).ok()).collect()
}
