//! What the kernel counts for each user of the machine: a jail gets a part of it, so that its commands cannot use up what
//! the host's user, or another jail of the same user, needs.
//!
//! It is kept by the jail's user namespace, whatever its processes do. Where it cannot be had nothing is lost but
//! this: the counts are of what commands may use anyhow.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most that a jail as a whole may have, and with it each of its processes.
const LIMITS: [(Resource, u64); 2] = [
    // Signals that wait, and timers.
    (Resource::Sigpending, 4096),
    // Bytes of POSIX message queues.
    (Resource::Msgqueue, 256 * 1024),
];

/// What the namespace may have at most: names in `/proc/sys/user`. It needs no namespaces within, and nothing that
/// only administrators watch files with.
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

/// Lowers the limits of this process and its children. The user namespace that it makes next holds all that are in it to
/// them together.
pub(super) fn lower_limits() {
    for (resource, most) in LIMITS {
        let now = getrlimit(resource);
        let capped = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        let _ = setrlimit(resource, Rlimit { current: capped(now.current), maximum: capped(now.maximum) });
    }
}

/// Says how much the user namespace of this process may have, while it still has the right to, and sees the old `/proc`.
pub(super) fn lower_counts() {
    for (name, most) in COUNTS {
        let path = format!("/proc/sys/user/{name}");
        let now = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
        if now.is_some_and(|now| now > most) {
            let _ = fs::write(&path, most.to_string());
        }
    }
}
