//! Folders of the host that belong to sandboxes: made, filled, and removed whatever lies in them.

#[cfg(feature = "jail")]
mod host;
#[cfg(feature = "jail")]
mod place;
mod removal;

#[cfg(feature = "jail")]
pub use host::{Places, SweptPlaces};
#[cfg(feature = "jail")]
pub use place::{Place, Shelf};
pub use removal::{FolderId, remove_folder};

/// Renames a folder to a name that is not taken.
#[cfg(feature = "jail")]
fn rename_new(
    from: &std::os::fd::OwnedFd,
    name: &str,
    to: &std::os::fd::OwnedFd,
    new_name: &str,
) -> Result<(), rustix::io::Errno> {
    use rustix::io::Errno;
    match rustix::fs::renameat_with(from, name, to, new_name, rustix::fs::RenameFlags::NOREPLACE) {
        // The file system does not know the flag. Then only an empty folder is replaced.
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(from, name, to, new_name),
        other => other,
    }
}
