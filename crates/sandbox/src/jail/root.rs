//! The root of a jail: the machine's programs and libraries, for reading only, and what is the jail's own.

use std::fs;
use std::path::Path;

use conjure_guest::protocol::{Access, Bind, Content, Links, Missing, Owner, Place, PlaceKind};

use super::etc;
use super::identity::HOME;
use super::interpreters::Installation;
use crate::limits::Limits;

/// Where the workspace lies.
pub(crate) const WORKSPACE: &str = "/workspace";

/// Where output that was cut is kept.
pub(crate) const OUTPUT: &str = "/output";

/// The name of the machine inside.
pub(crate) const HOSTNAME: &str = "sandbox";

/// Where commands may write, beside the workspace.
pub(crate) const WRITABLE: [&str; 3] = ["/tmp", HOME, "/dev/shm"];

/// Devices that are harmless.
pub(crate) const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Folders of the system beside `/usr`: on most machines links into it.
const MERGED: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Stores that systems keep their programs in instead.
const STORES: [&str; 3] = ["/nix/store", "/gnu/store", "/run/current-system"];

/// What of `/proc` tells of the machine rather than of the jail, or would let it be changed.
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

/// A file system in memory needs few files for its bytes.
const BYTES_PER_INODE: u64 = 4096;

/// What every jail on this machine has; looks at the machine.
pub(super) fn machine(installations: &[Installation]) -> Vec<Place> {
    let mut places = vec![bound("/usr", Missing::Refused)];
    for path in MERGED {
        match fs::read_link(path).ok().and_then(|target| target.to_str().map(str::to_owned)) {
            Some(target) => places.push(place(path, PlaceKind::Link { target })),
            None if Path::new(path).is_dir() => places.push(bound(path, Missing::LeftOut)),
            None => {}
        }
    }
    places.extend(
        STORES.into_iter().filter(|path| Path::new(path).exists()).map(|path| bound(path, Missing::LeftOut)),
    );
    let parts = installations.iter().flat_map(|found| &found.parts).filter_map(|part| part.to_str());
    // What lies below `/usr` is there already.
    places.extend(
        parts.filter(|part| !Path::new(part).starts_with("/usr")).map(|part| bound(part, Missing::LeftOut)),
    );
    places.extend(etc::places(Path::new("/etc"), HOSTNAME));
    places
}

/// What is the jail's own: temporary folders, devices, processes.
pub(super) fn own(limits: &Limits) -> Vec<Place> {
    // One limit for all temporary files; most of them are expected in `/tmp`.
    let (half, quarter) = (limits.tmp() / 2, limits.tmp() / 4);
    let writable = |bytes: u64, mode| PlaceKind::Tmpfs {
        bytes,
        inodes: (bytes / BYTES_PER_INODE).max(64),
        mode,
        access: Access::ReadWrite,
    };
    let link = |path: &str, target: &str| place(path, PlaceKind::Link { target: target.to_owned() });
    let mut places = vec![
        place("/tmp", writable(half, 0o1777)),
        place("/home", PlaceKind::Folder { mode: 0o755 }),
        place(HOME, writable(quarter, 0o755)),
        place("/var", PlaceKind::Folder { mode: 0o755 }),
        link("/var/tmp", "/tmp"),
        link("/var/run", "/run"),
        place("/run", PlaceKind::Folder { mode: 0o755 }),
        place("/mnt", PlaceKind::Folder { mode: 0o755 }),
        place("/dev", PlaceKind::Folder { mode: 0o755 }),
    ];
    places.extend(DEVICES.map(|path| {
        let bind = Bind {
            source: path.to_owned(),
            access: Access::ReadWrite,
            content: Content::Device,
            links: Links::Refused,
            // A container may have no terminal; the rest is everywhere, and missed by those alone who need it.
            missing: if path == "/dev/null" { Missing::Refused } else { Missing::LeftOut },
            owner: Owner::Kept,
        };
        place(path, PlaceKind::Bind(bind))
    }));
    places.extend([
        place("/dev/pts", PlaceKind::Terminals),
        link("/dev/ptmx", "pts/ptmx"),
        place("/dev/shm", writable(quarter, 0o1777)),
        link("/dev/fd", "/proc/self/fd"),
        link("/dev/stdin", "/proc/self/fd/0"),
        link("/dev/stdout", "/proc/self/fd/1"),
        link("/dev/stderr", "/proc/self/fd/2"),
        place("/proc", PlaceKind::Proc),
    ]);
    places.extend(HIDDEN.map(|path| place(path, PlaceKind::Hidden)));
    places.extend(FIXED.map(|path| place(path, PlaceKind::Fixed)));
    places
}

pub(super) fn place(path: &str, is: PlaceKind) -> Place {
    Place { path: path.to_owned(), is }
}

/// A folder of the machine's own, at its own path.
fn bound(path: &str, missing: Missing) -> Place {
    let bind = Bind {
        source: path.to_owned(),
        access: Access::ReadOnly,
        content: Content::Programs,
        links: Links::Followed,
        missing,
        owner: Owner::Kept,
    };
    place(path, PlaceKind::Bind(bind))
}
