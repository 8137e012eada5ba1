//! A sandbox as tools make one with bubblewrap: nothing is shared, and the system is read-only.

/// The command line up to the program that is to run.
pub(crate) const BUBBLEWRAP: [&str; 21] = [
    "bwrap",
    "--unshare-all",
    "--die-with-parent",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
];
