//! The mount table of a jail's root: the machine's programs and libraries, read-only, and the jail's own file systems.

use std::fs;
use std::path::Path;

use conjure_guest::protocol::{
    Access, Bind, BindContent, IfMissing, MountEntry, MountKind, OwnerMapping, SymlinkPolicy,
};

use super::etc;
use super::interpreters::Installation;
use super::user::HOME;
use crate::settings::limits::Limits;

/// The path of the workspace.
pub(crate) const WORKSPACE: &str = "/workspace";

/// The directory for output that was cut.
pub(crate) const OUTPUT: &str = "/output";

/// The host name in the sandbox.
pub(crate) const HOSTNAME: &str = "sandbox";

/// The writable paths, in addition to the workspace.
pub(crate) const WRITABLE: [&str; 3] = ["/tmp", HOME, "/dev/shm"];

/// Devices that are harmless.
pub(crate) const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// System directories outside `/usr`. On most machines they are links into it.
const MERGED: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Package stores of systems that do not use `/usr`.
const STORES: [&str; 3] = ["/nix/store", "/gnu/store", "/run/current-system"];

/// The entries of `/proc` that reveal or change the machine rather than the jail. They are hidden.
const HIDDEN: [&str; 16] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/config.gz",
    "/proc/diskstats",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/timer_stats",
];

const FIXED: [&str; 4] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"];

/// The number of bytes per inode: in-memory file systems need few inodes.
const BYTES_PER_INODE: u64 = 4096;

/// The mounts of every jail on this machine. Reads the machine's directories.
pub(super) fn host_mounts(installations: &[Installation]) -> Vec<MountEntry> {
    let mut mounts = vec![bind_mount("/usr", IfMissing::Fail)];
    for path in MERGED {
        match fs::read_link(path).ok().and_then(|target| target.to_str().map(str::to_owned)) {
            Some(target) => mounts.push(mount_entry(path, MountKind::Link { target })),
            None if Path::new(path).is_dir() => mounts.push(bind_mount(path, IfMissing::Skip)),
            None => {}
        }
    }
    mounts.extend(
        STORES
            .into_iter()
            .filter(|path| Path::new(path).exists())
            .map(|path| bind_mount(path, IfMissing::Skip)),
    );
    let parts = installations.iter().flat_map(|found| &found.parts).filter_map(|part| part.to_str());
    // Directories beneath `/usr` are already mounted.
    mounts.extend(
        parts
            .filter(|part| !Path::new(part).starts_with("/usr"))
            .map(|part| bind_mount(part, IfMissing::Skip)),
    );
    mounts.extend(etc::mounts(Path::new("/etc"), HOSTNAME));
    mounts
}

/// The own file systems of each jail: temporary directories, devices, processes.
pub(super) fn own_mounts(limits: &Limits) -> Vec<MountEntry> {
    // The temporary directories share one limit. Most files are expected in `/tmp`.
    let (half, quarter) = (limits.tmp() / 2, limits.tmp() / 4);
    let writable = |bytes: u64, mode| MountKind::Tmpfs {
        bytes,
        inodes: (bytes / BYTES_PER_INODE).max(64),
        mode,
        access: Access::ReadWrite,
    };
    let link = |path: &str, target: &str| mount_entry(path, MountKind::Link { target: target.to_owned() });
    let mut mounts = vec![
        mount_entry("/tmp", writable(half, 0o1777)),
        mount_entry("/home", MountKind::Dir { mode: 0o755 }),
        mount_entry(HOME, writable(quarter, 0o755)),
        mount_entry("/var", MountKind::Dir { mode: 0o755 }),
        link("/var/tmp", "/tmp"),
        link("/var/run", "/run"),
        mount_entry("/run", MountKind::Dir { mode: 0o755 }),
        mount_entry("/mnt", MountKind::Dir { mode: 0o755 }),
        mount_entry("/dev", MountKind::Dir { mode: 0o755 }),
    ];
    mounts.extend(DEVICES.map(|path| {
        let bind = Bind {
            source: path.to_owned(),
            access: Access::ReadWrite,
            content: BindContent::Device,
            links: SymlinkPolicy::Refuse,
            // A container may have no terminal device. `/dev/null` is required; the other devices exist almost
            // everywhere, and few programs need them.
            missing: if path == "/dev/null" { IfMissing::Fail } else { IfMissing::Skip },
            owner: OwnerMapping::Unchanged,
        };
        mount_entry(path, MountKind::Bind(bind))
    }));
    mounts.extend([
        mount_entry("/dev/pts", MountKind::DevPts),
        link("/dev/ptmx", "pts/ptmx"),
        mount_entry("/dev/shm", writable(quarter, 0o1777)),
        link("/dev/fd", "/proc/self/fd"),
        link("/dev/stdin", "/proc/self/fd/0"),
        link("/dev/stdout", "/proc/self/fd/1"),
        link("/dev/stderr", "/proc/self/fd/2"),
        mount_entry("/proc", MountKind::Proc),
    ]);
    mounts.extend(HIDDEN.map(|path| mount_entry(path, MountKind::Masked)));
    mounts.extend(FIXED.map(|path| mount_entry(path, MountKind::ReadOnlyOverlay)));
    mounts
}

pub(super) fn mount_entry(path: &str, is: MountKind) -> MountEntry {
    MountEntry { path: path.to_owned(), kind: is }
}

/// A read-only directory of the machine, at the same path.
fn bind_mount(path: &str, missing: IfMissing) -> MountEntry {
    let bind = Bind {
        source: path.to_owned(),
        access: Access::ReadOnly,
        content: BindContent::Programs,
        links: SymlinkPolicy::Follow,
        missing,
        owner: OwnerMapping::Unchanged,
    };
    mount_entry(path, MountKind::Bind(bind))
}
