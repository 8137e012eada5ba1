//! The system-call filter of containers, as the engine takes it: the outer one of two filters.
//!
//! The filter itself is a file, `docker/seccomp.json`. An embedder can use the same file for its own containers. It
//! is an allow list: a call that it does not name fails with `EPERM`. It applies from the start of the container,
//! also to the guest, and also where the guest's own filter is missing. The guest applies a second filter to its
//! commands. That filter knows more: which process is the guest, and which arguments are harmful.
//!
//! The conditions in the file:
//!
//! - `clone` makes no namespaces. `clone3` and `io_uring` do not exist (`ENOSYS`): their arguments are in memory,
//!   which a filter cannot read. Libraries then use `clone` and ordinary reads. `statmount` and `listmount` do not
//!   exist either: they show where on the host a mount comes from.
//! - Calls that set permission bits (`chmod`, `mknod`, `open` with `O_CREAT` or `O_TMPFILE`, …) do not set the
//!   set-user-id and set-group-id bits. `openat2` is allowed, because the guest needs it; the guest's filter refuses
//!   it to commands.
//! - `pidfd_send_signal` signals one thread or one process, not a group.
//! - `socket` creates Unix, IPv4 and IPv6 sockets, and the netlink socket by which libraries ask for their own
//!   addresses. It does not create `AF_VSOCK`, `AF_ALG`, packet sockets and the rest. `socketpair` creates Unix
//!   sockets.
//! - `personality` sets `PER_LINUX` and `PER_LINUX32`, each also with the version of Linux 2.6.
//! - Calls of other architectures end their process. The guest's filter refuses the call numbers of x32.

use serde_json::Value;

const PROFILE: &str = include_str!("../../../docker/seccomp.json");

/// Returns the profile, in the form that `docker run --security-opt seccomp=FILE` and Podman accept.
#[must_use]
#[expect(clippy::expect_used, reason = "the file is built in, and a test parses it")]
pub fn profile() -> Value {
    serde_json::from_str(PROFILE).expect("the built-in profile is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of `clone` that make namespaces: mounts, control groups, names, messages, users, processes, network.
    const NAMESPACES: [u64; 7] =
        [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];

    /// The permission bits by which a program runs as its owner or its group.
    const SET_ID: u64 = 0o6000;

    /// The rules that name `call`: the action of each, and its conditions.
    fn rules(call: &str) -> Vec<(String, Vec<Value>)> {
        let profile = profile();
        let all = profile["syscalls"].as_array().unwrap().iter();
        let naming = all.filter(|rule| rule["names"].as_array().unwrap().iter().any(|name| name == call));
        naming
            .map(|rule| {
                let conditions = rule["args"].as_array().cloned().unwrap_or_default();
                (rule["action"].as_str().unwrap().to_owned(), conditions)
            })
            .collect()
    }

    fn is_allowed(call: &str) -> bool {
        rules(call) == [("SCMP_ACT_ALLOW".to_owned(), Vec::new())]
    }

    /// Whether every rule for `call` is an allowance with a condition, and one of them masks `argument` by `mask`.
    #[track_caller]
    fn check_condition(call: &str, argument: u64, mask: u64) {
        let rules = rules(call);
        assert!(
            rules.iter().all(|(action, conditions)| action == "SCMP_ACT_ALLOW" && !conditions.is_empty()),
            "{call}"
        );
        let expected =
            serde_json::json!({"index": argument, "value": mask, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"});
        assert!(rules.iter().any(|(_, conditions)| *conditions == [expected.clone()]), "{call}: {rules:?}");
    }

    #[test]
    fn a_call_that_is_not_named_is_refused() {
        let profile = profile();
        assert_eq!(
            (&profile["defaultAction"], &profile["defaultErrnoRet"]),
            (&"SCMP_ACT_ERRNO".into(), &1.into())
        );
        for name in [
            "mount",
            "umount2",
            "pivot_root",
            "chroot",
            "move_mount",
            "open_tree",
            "fsopen",
            "mount_setattr",
            "unshare",
            "setns",
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "pidfd_getfd",
            "kcmp",
            "add_key",
            "keyctl",
            "request_key",
            "bpf",
            "perf_event_open",
            "userfaultfd",
            "init_module",
            "finit_module",
            "kexec_load",
            "reboot",
            "open_by_handle_at",
            "syslog",
            "settimeofday",
            "clock_settime",
            "sethostname",
            "acct",
            "swapon",
        ] {
            assert_eq!(rules(name), [], "{name}");
        }
        for name in
            ["clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "statmount", "listmount"]
        {
            assert_eq!(rules(name), [("SCMP_ACT_ERRNO".to_owned(), Vec::new())], "{name}");
        }
    }

    #[test]
    fn the_list_is_in_order() {
        let profile = profile();
        let names: Vec<_> =
            profile["syscalls"][0]["names"].as_array().unwrap().iter().map(|name| name.as_str()).collect();
        assert!(names.len() > 250 && names.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn the_calls_by_which_the_guest_confines_itself_are_allowed() {
        for name in [
            "seccomp",
            "landlock_create_ruleset",
            "landlock_add_rule",
            "landlock_restrict_self",
            "openat2",
            "pidfd_open",
            "prctl",
            "signalfd4",
            "execve",
            "execveat",
            "wait4",
            "waitid",
            "memfd_create",
            "rseq",
        ] {
            assert!(is_allowed(name), "{name}");
        }
    }

    #[test]
    fn calls_that_take_permission_bits_have_a_condition() {
        let modes = [
            ("chmod", 1),
            ("fchmod", 1),
            ("fchmodat", 2),
            ("fchmodat2", 2),
            ("creat", 1),
            ("mknod", 1),
            ("mknodat", 2),
        ];
        for (name, mode) in modes {
            check_condition(name, mode, SET_ID);
        }
        // The flags that make a file, as the guest's filter has them.
        let flags = rustix::fs::OFlags::CREATE
            | rustix::fs::OFlags::TMPFILE.difference(rustix::fs::OFlags::DIRECTORY);
        for (name, argument, mode) in [("open", 1, 2), ("openat", 2, 3)] {
            check_condition(name, argument, flags.bits().into());
            check_condition(name, mode, SET_ID);
        }
    }

    #[test]
    fn namespaces_groups_and_other_sockets_are_excluded() {
        check_condition("clone", 0, NAMESPACES.iter().fold(0, |all, flag| all | flag));
        check_condition("pidfd_send_signal", 3, 0xffff_fffc);
        for name in ["socket", "socketpair", "personality"] {
            assert!(
                !rules(name).is_empty() && rules(name).iter().all(|(_, conditions)| !conditions.is_empty()),
                "{name}"
            );
        }
    }
}
