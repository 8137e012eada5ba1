//! Per-user kernel limits of the jail's user namespace. They keep a jail from using up what the host's user, or
//! another jail of the same user, needs.
//!
//! Where they cannot be set, only this protection is missing. The limits of commands do not depend on them.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limits of the jail as a whole, and of each of its processes.
const LIMITS: [(Resource, u64); 2] = [
    // Queued signals and timers.
    (Resource::Sigpending, 4096),
    // Bytes of POSIX message queues.
    (Resource::Msgqueue, 256 * 1024),
];

/// The limits of the namespace, by their names in `/proc/sys/user`. A jail needs no nested namespaces, and no file
/// watches that only administrators use.
const COUNTS: [(&str, u64); 12] = [
    ("max_inotify_instances", 48),
    ("max_inotify_watches", 32_768),
    ("max_fanotify_groups", 0),
    ("max_fanotify_marks", 0),
    ("max_user_namespaces", 0),
    ("max_mnt_namespaces", 0),
    ("max_pid_namespaces", 0),
    ("max_net_namespaces", 0),
    ("max_ipc_namespaces", 0),
    ("max_uts_namespaces", 0),
    ("max_cgroup_namespaces", 0),
    ("max_time_namespaces", 0),
];

/// Lowers the limits of this process and its children. They apply to all processes together in the user namespace
/// that this process creates next.
pub(super) fn lower_limits() {
    for (resource, most) in LIMITS {
        let now = getrlimit(resource);
        let capped = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        let _ = setrlimit(resource, Rlimit { current: capped(now.current), maximum: capped(now.maximum) });
    }
}

/// Writes the limits of this user namespace. This process must still have the right to, and must still see the old
/// `/proc`.
pub(super) fn lower_counts() {
    for (name, most) in COUNTS {
        let path = format!("/proc/sys/user/{name}");
        let now = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
        if now.is_some_and(|now| now > most) {
            let _ = fs::write(&path, most.to_string());
        }
    }
}
