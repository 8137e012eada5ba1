//! Renames that replace nothing, also on file systems without `RENAME_NOREPLACE`.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Renames a directory to a name that must be free.
///
/// On a file system without `RENAME_NOREPLACE`, an empty directory of that name is replaced.
///
/// # Errors
/// `EXIST`, `NOTEMPTY` or `NOTDIR` when the name is taken, and others of the system.
pub fn rename_dir_new<P: Arg + Copy, Q: Arg + Copy>(
    from: impl AsFd,
    name: P,
    to: impl AsFd,
    new_name: Q,
) -> Result<(), Errno> {
    match rustix::fs::renameat_with(&from, name, &to, new_name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(from, name, to, new_name),
        other => other,
    }
}

/// Renames a file to a name that must be free.
///
/// # Errors
/// `EXIST` when the name is taken, and others of the system.
pub fn rename_file_new<P: Arg + Copy, Q: Arg + Copy>(
    from: impl AsFd,
    name: P,
    to: impl AsFd,
    new_name: Q,
) -> Result<(), Errno> {
    match rustix::fs::renameat_with(&from, name, &to, new_name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(&from, name, to, new_name, AtFlags::empty())?;
            rustix::fs::unlinkat(from, name, AtFlags::empty())
        }
        other => other,
    }
}
