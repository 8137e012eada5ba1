//! A workspace whose size the kernel limits: an ext4 file system in a sparse file beside it, mounted over it.
//!
//! ```text
//! <dir>/workspace.img    the file system; `workspace.img.new` while it is made
//! <dir>/workspace/       where it is mounted, with the host's right to mount
//! ```
//!
//! State: the file and the mount. The file stays as long as the workspace. The mount outlives this process, and the
//! next process uses it. After a restart of the machine, the next use of the workspace mounts it again. It is
//! unmounted when the directory is removed.

use std::os::fd::{AsRawFd as _, BorrowedFd};
#[cfg(feature = "jail")]
use std::{
    fs::{self, File},
    io,
    os::fd::AsFd as _,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::Stdio,
};

#[cfg(feature = "jail")]
use conjure_fs::TreeRemoval;
use rustix::fs::{AtFlags, statat};

#[cfg(feature = "jail")]
use crate::error::{SandboxError, SandboxErrorKind};
#[cfg(feature = "jail")]
use crate::settings::limits::Limits;

const IMAGE: &str = "workspace.img";
const WORKSPACE: &str = "workspace";

/// The number of bytes that ext4 uses for a file or directory, in addition to its content.
#[cfg(feature = "jail")]
const BYTES_PER_INODE: u64 = 256;

/// The number of bytes that ext4 uses for itself, in addition to a fraction of its size.
#[cfg(feature = "jail")]
const OVERHEAD_BYTES: u64 = 1 << 20;
#[cfg(feature = "jail")]
const OVERHEAD_SHARE: u64 = 16;

/// The number of files that ext4 contains from the start.
#[cfg(feature = "jail")]
const RESERVED_INODES: u64 = 11;

/// Lets the kernel limit a session's workspace. No command may run in the workspace. Blocks. The first call copies
/// existing files into the file system. A workspace that is limited already keeps its limits.
///
/// # Errors
/// `NotEnforced` if this process may not mount, if the machine lacks a program for it, or if the files do not fit;
/// `NoSpace` and other errors of the system.
#[cfg(feature = "jail")]
pub(crate) fn mount_limited(workspace: &Path, limits: &Limits) -> Result<(), SandboxError> {
    if !rustix::process::geteuid().is_root() {
        let message = "the kernel limits the disk of sandboxes only for a host that is root; have the guest watch over it";
        return Err(SandboxError::new(SandboxErrorKind::NotEnforced, message));
    }
    let Some(dir) = workspace.parent() else { return Ok(()) };
    if is_mounted(dir) {
        return Ok(());
    }
    if !dir.join(IMAGE).exists() {
        create_image(dir, limits)?;
        // The image has copies of these entries, and its mount would hide them here.
        let directory = File::open(workspace).map_err(|error| failed("open", workspace, &error))?;
        for entry in fs::read_dir(workspace).map_err(|error| failed("look into", workspace, &error))? {
            let entry = entry.map_err(|error| failed("look into", workspace, &error))?;
            TreeRemoval::new(None).remove(directory.as_fd(), &entry.file_name())?;
        }
    }
    mount(dir)
}

/// Mounts the file system of a workspace again after a restart of the machine. Blocks.
#[cfg(feature = "jail")]
pub(crate) fn remount(workspace: &Path) -> Result<(), SandboxError> {
    match workspace.parent() {
        Some(dir) if dir.join(IMAGE).exists() && !is_mounted(dir) => mount(dir),
        _ => Ok(()),
    }
}

/// Unmounts the workspace of an open directory if the kernel limits it. Open files stay usable.
pub(super) fn unmount(dir: BorrowedFd<'_>) {
    let device = |name: &str| {
        statat(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT).map(|stat| stat.st_dev)
    };
    let (Ok(image), Ok(workspace)) = (device(IMAGE), device(WORKSPACE)) else { return };
    if image == workspace {
        return;
    }
    let path = format!("/proc/self/fd/{}/{WORKSPACE}", dir.as_raw_fd());
    let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW;
    if let Err(error) = rustix::mount::unmount(path, flags) {
        tracing::warn!(%error, "a workspace cannot be unmounted, and stays");
    }
}

#[cfg(feature = "jail")]
fn is_mounted(dir: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).ok().map(|found| found.dev());
    device(&dir.join(WORKSPACE)) != device(dir)
}

/// Creates the file system under a temporary name, and renames it when it is complete.
#[cfg(feature = "jail")]
fn create_image(dir: &Path, limits: &Limits) -> Result<(), SandboxError> {
    let staging = dir.join(format!("{IMAGE}.new"));
    let inodes = limits.inodes() + RESERVED_INODES;
    let bytes = limits.disk() + limits.disk() / OVERHEAD_SHARE + inodes * BYTES_PER_INODE + OVERHEAD_BYTES;
    let file = File::create(&staging).map_err(|error| failed("make", &staging, &error))?;
    file.set_len(bytes).map_err(|error| failed("make", &staging, &error))?;
    drop(file);
    let inodes = inodes.to_string();
    let path = staging.as_os_str();
    // No blocks are reserved for root.
    let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-I", "256", "-N", &inodes, "-E"];
    let options = options.into_iter().chain(["nodiscard", "-d"]).map(AsRef::as_ref);
    let workspace = dir.join(WORKSPACE);
    run("mke2fs", "e2fsprogs", options.chain([workspace.as_os_str(), path]))?;
    fs::rename(&staging, dir.join(IMAGE)).map_err(|error| failed("make", &staging, &error))
}

#[cfg(feature = "jail")]
fn mount(dir: &Path) -> Result<(), SandboxError> {
    let (image, workspace) = (dir.join(IMAGE), dir.join(WORKSPACE));
    let owner = fs::metadata(&workspace).map_err(|error| failed("look into", &workspace, &error))?;
    let options = ["-t", "ext4", "-o", "loop,nosuid,nodev,noatime", "--"].map(AsRef::as_ref);
    run("mount", "mount", options.into_iter().chain([image.as_os_str(), workspace.as_os_str()]))?;
    // The mount gets the permissions of the directory beneath it.
    let settled = fs::set_permissions(&workspace, owner.permissions())
        .and_then(|()| match fs::remove_dir(workspace.join("lost+found")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
        .map_err(|error| failed("use", &workspace, &error));
    if settled.is_err()
        && let Ok(dir) = File::open(dir)
    {
        unmount(dir.as_fd());
    }
    settled
}

/// Runs a program of this package and waits for its end.
#[cfg(feature = "jail")]
#[expect(clippy::disallowed_methods, reason = "only programs of the system can make and mount a file system")]
fn run<'a>(
    program: &str,
    package: &str,
    arguments: impl Iterator<Item = &'a std::ffi::OsStr>,
) -> Result<(), SandboxError> {
    let output = std::process::Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output();
    let reason = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            format!("there is no `{program}`; install the package {package}")
        }
        Err(error) => format!("`{program}` cannot be run: {error}"),
    };
    let message = format!("the kernel cannot limit the disk of a sandbox here: {reason}");
    Err(SandboxError::new(SandboxErrorKind::NotEnforced, message))
}

#[cfg(feature = "jail")]
fn failed(doing: &str, path: &Path, error: &io::Error) -> SandboxError {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SandboxErrorKind::NoSpace,
        _ => SandboxErrorKind::Unavailable,
    };
    let path = path.display();
    SandboxError::new(
        kind,
        format!("the kernel cannot limit a workspace: failed to {doing} `{path}`: {error}"),
    )
}

#[cfg(all(test, feature = "jail"))]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        let error = run("mke2fs-that-is-not-there", "e2fsprogs", std::iter::empty()).unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::NotEnforced);
        let message = error.to_string();
        assert!(message.contains("`mke2fs-that-is-not-there`; install the package e2fsprogs"), "{message}");
    }
}
