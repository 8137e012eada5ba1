//! Renames that replace nothing.

#[cfg(feature = "jail")]
use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

/// Renames a directory to a name that is free.
pub(super) fn rename_new(from: &OwnedFd, name: &str, to: &OwnedFd, new_name: &str) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE) {
        // The file system does not support the flag. Then only an empty directory is replaced.
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(from, name, to, new_name),
        other => other,
    }
}

/// Moves a file to another directory, where its name must be free.
pub(super) fn move_new(from: &OwnedFd, to: &OwnedFd, name: &str) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, name, RenameFlags::NOREPLACE) {
        // The file system does not support the flag.
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::linkat(from, name, to, name, AtFlags::empty()),
        other => other,
    }
}

/// Moves a file or directory to another directory, where its name must be free.
#[cfg(feature = "jail")]
pub(super) fn rename_new_at(from: &OwnedFd, to: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    rustix::fs::renameat_with(from, name, to, name, RenameFlags::NOREPLACE)
}
