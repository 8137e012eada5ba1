//! Folders of the host that belong to sandboxes: made, filled, and removed whatever lies in them.

mod disk_image;
#[cfg(feature = "jail")]
mod handing;
mod host;
mod place;
mod removal;
mod shelves;

#[cfg(feature = "jail")]
use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

#[cfg(feature = "jail")]
pub(crate) use disk_image::{mount_again, mount_limited};
#[cfg(feature = "jail")]
pub(crate) use handing::{Had, hand_over, settle};
#[cfg(feature = "docker")]
pub(crate) use host::KnownPlaces;
pub use host::{Places, SweptPlaces};
pub use place::Place;
pub(crate) use place::{Purpose, kind_of};
pub(crate) use removal::remove_beneath;
pub use removal::{FolderId, remove_folder};
pub use shelves::Shelves;

/// Renames a folder to a name that is not taken.
fn rename_new(from: &OwnedFd, name: &str, to: &OwnedFd, new_name: &str) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE) {
        // The file system does not know the flag. Then only an empty folder is replaced.
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(from, name, to, new_name),
        other => other,
    }
}

/// Moves a file to another folder, where its name must not be taken.
fn move_new(from: &OwnedFd, to: &OwnedFd, name: &str) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, name, RenameFlags::NOREPLACE) {
        // The file system does not know the flag.
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::linkat(from, name, to, name, AtFlags::empty()),
        other => other,
    }
}

/// Moves something, whatever it is, to another folder, where its name must not be taken.
#[cfg(feature = "jail")]
fn rename_new_at(from: &OwnedFd, to: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    rustix::fs::renameat_with(from, name, to, name, RenameFlags::NOREPLACE)
}
