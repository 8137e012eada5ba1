//! Which system calls containers may make, for the engine: the outer one of two filters.
//!
//! The guest closes its commands in by a filter of its own, which knows more: which process is the guest, which arguments
//! harm. This one holds from the first moment, also for the guest, and where the guest's were missing. It is a list of what
//! is allowed: what it does not name is refused. A host finds it as `docker/seccomp.json` too, to run containers of its
//! own under it.

use serde_json::{Value, json};

/// Calls that programs of all kinds make, by the names that any architecture has for them. What an engine does not know it
/// leaves out.
const ALLOWED: [&str; 294] = [
    "accept",
    "accept4",
    "access",
    "adjtimex",
    "alarm",
    "arch_prctl",
    "bind",
    "brk",
    "cachestat",
    "capget",
    "capset",
    "chdir",
    "chown",
    "clock_adjtime",
    "clock_getres",
    "clock_gettime",
    "clock_nanosleep",
    "close",
    "close_range",
    "connect",
    "copy_file_range",
    "dup",
    "dup2",
    "dup3",
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "eventfd",
    "eventfd2",
    "execve",
    "execveat",
    "exit",
    "exit_group",
    "faccessat",
    "faccessat2",
    "fadvise64",
    "fallocate",
    "fanotify_mark",
    "fchdir",
    "fchown",
    "fchownat",
    "fcntl",
    "fdatasync",
    "fgetxattr",
    "file_getattr",
    "file_setattr",
    "flistxattr",
    "flock",
    "fork",
    "fremovexattr",
    "fsetxattr",
    "fstat",
    "fstatfs",
    "fsync",
    "ftruncate",
    "futex",
    "futex_requeue",
    "futex_wait",
    "futex_waitv",
    "futex_wake",
    "futimesat",
    "get_mempolicy",
    "get_robust_list",
    "get_thread_area",
    "getcpu",
    "getcwd",
    "getdents",
    "getdents64",
    "getegid",
    "geteuid",
    "getgid",
    "getgroups",
    "getitimer",
    "getpeername",
    "getpgid",
    "getpgrp",
    "getpid",
    "getppid",
    "getpriority",
    "getrandom",
    "getresgid",
    "getresuid",
    "getrlimit",
    "getrusage",
    "getsid",
    "getsockname",
    "getsockopt",
    "gettid",
    "gettimeofday",
    "getuid",
    "getxattr",
    "getxattrat",
    "inotify_add_watch",
    "inotify_init",
    "inotify_init1",
    "inotify_rm_watch",
    "io_cancel",
    "io_destroy",
    "io_getevents",
    "io_pgetevents",
    "io_setup",
    "io_submit",
    "ioctl",
    "ioprio_get",
    "ioprio_set",
    "kill",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "lchown",
    "lgetxattr",
    "link",
    "linkat",
    "listen",
    "listxattr",
    "listxattrat",
    "llistxattr",
    "lremovexattr",
    "lseek",
    "lsetxattr",
    "lsm_get_self_attr",
    "lsm_list_modules",
    "lstat",
    "madvise",
    "map_shadow_stack",
    "mbind",
    "membarrier",
    "memfd_create",
    "memfd_secret",
    "mincore",
    "mkdir",
    "mkdirat",
    "mlock",
    "mlock2",
    "mlockall",
    "mmap",
    "move_pages",
    "mprotect",
    "mq_getsetattr",
    "mq_notify",
    "mq_open",
    "mq_timedreceive",
    "mq_timedsend",
    "mq_unlink",
    "mremap",
    "mseal",
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "msync",
    "munlock",
    "munlockall",
    "munmap",
    "name_to_handle_at",
    "nanosleep",
    "newfstatat",
    "openat2",
    "pause",
    "pidfd_open",
    "pipe",
    "pipe2",
    "pkey_alloc",
    "pkey_free",
    "pkey_mprotect",
    "poll",
    "ppoll",
    "prctl",
    "pread64",
    "preadv",
    "preadv2",
    "prlimit64",
    "pselect6",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readahead",
    "readlink",
    "readlinkat",
    "readv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "remap_file_pages",
    "removexattr",
    "removexattrat",
    "rename",
    "renameat",
    "renameat2",
    "restart_syscall",
    "rmdir",
    "rseq",
    "rt_sigaction",
    "rt_sigpending",
    "rt_sigprocmask",
    "rt_sigqueueinfo",
    "rt_sigreturn",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "rt_tgsigqueueinfo",
    "sched_get_priority_max",
    "sched_get_priority_min",
    "sched_getaffinity",
    "sched_getattr",
    "sched_getparam",
    "sched_getscheduler",
    "sched_rr_get_interval",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "sched_yield",
    "seccomp",
    "select",
    "semctl",
    "semget",
    "semop",
    "semtimedop",
    "sendfile",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "set_mempolicy",
    "set_mempolicy_home_node",
    "set_robust_list",
    "set_thread_area",
    "set_tid_address",
    "setfsgid",
    "setfsuid",
    "setgid",
    "setgroups",
    "setitimer",
    "setpgid",
    "setpriority",
    "setregid",
    "setresgid",
    "setresuid",
    "setreuid",
    "setrlimit",
    "setsid",
    "setsockopt",
    "setuid",
    "setxattr",
    "setxattrat",
    "shmat",
    "shmctl",
    "shmdt",
    "shmget",
    "shutdown",
    "sigaltstack",
    "signalfd",
    "signalfd4",
    "splice",
    "stat",
    "statfs",
    "statx",
    "symlink",
    "symlinkat",
    "sync",
    "sync_file_range",
    "sync_file_range2",
    "syncfs",
    "sysinfo",
    "tee",
    "tgkill",
    "time",
    "timer_create",
    "timer_delete",
    "timer_getoverrun",
    "timer_gettime",
    "timer_settime",
    "timerfd_create",
    "timerfd_gettime",
    "timerfd_settime",
    "times",
    "tkill",
    "truncate",
    "umask",
    "uname",
    "unlink",
    "unlinkat",
    "utime",
    "utimensat",
    "utimes",
    "vfork",
    "vmsplice",
    "wait4",
    "waitid",
    "write",
    "writev",
];

/// Calls that programs do without when they do not exist, and would fail if they were refused: the flags of `clone3` lie
/// in memory, where no filter sees them, so libraries must take `clone`; `io_uring` is a way around every filter; the other
/// two tell where on the host what is mounted comes from.
const NOT_THERE: [&str; 6] =
    ["clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "statmount", "listmount"];

/// The flags of `clone` that make namespaces.
const NEW_NAMESPACES: u64 = 0x7e02_0000;

/// Families of sockets: Unix, IPv4, IPv6. Not those of virtual machines (`AF_VSOCK`), of the kernel's ciphers (`AF_ALG`),
/// of whole packets, and the rest.
const FAMILIES: [u64; 3] = [UNIX, 2, 10];

const UNIX: u64 = 1;

/// Calls that give a file its permission bits, and which of their arguments these are. `openat2` is allowed, which the guest
/// needs and which has them in memory: the guest's filter keeps it from commands.
const MODES: [(&str, u32); 7] = [
    ("chmod", 1),
    ("fchmod", 1),
    ("fchmodat", 2),
    ("fchmodat2", 2),
    ("creat", 1),
    ("mknod", 1),
    ("mknodat", 2),
];

/// Calls that open a file: which of their arguments are the flags, and the permission bits of a new file.
const OPENING: [(&str, u32, u32); 2] = [("open", 1, 2), ("openat", 2, 3)];

/// The permission bits by which a program runs as its owner or its group.
const OTHER_USER: u64 = 0o6000;

/// `O_CREAT`, and what `O_TMPFILE` has besides `O_DIRECTORY`.
const MAKES_A_FILE: u64 = 0o2000_0100;

/// All flags of `pidfd_send_signal` but those that name one thread, or one process.
const PIDFD_SIGNAL_GROUPS: u64 = 0xffff_fffc;

/// `AF_NETLINK` and the protocol of routes, by which libraries ask for the own addresses.
const NETLINK: (u64, u64) = (16, 0);

/// `PER_LINUX` and `PER_LINUX32`, each also with the version of Linux 2.6, and the question what it is.
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// The profile, as `docker run --security-opt seccomp=FILE` and Podman take it.
#[must_use]
pub fn profile() -> Value {
    let mut rules = vec![
        json!({"names": ALLOWED.as_slice(), "action": "SCMP_ACT_ALLOW"}),
        json!({"names": NOT_THERE, "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS}),
        allowed_if("clone", &[masked(0, NEW_NAMESPACES, 0)]),
    ];
    rules.extend(MODES.map(|(name, mode)| allowed_if(name, &[masked(mode, OTHER_USER, 0)])));
    for (name, flags, mode) in OPENING {
        rules.push(allowed_if(name, &[masked(flags, MAKES_A_FILE, 0)]));
        rules.push(allowed_if(name, &[masked(mode, OTHER_USER, 0)]));
    }
    rules.push(allowed_if("pidfd_send_signal", &[masked(3, PIDFD_SIGNAL_GROUPS, 0)]));
    rules.push(allowed_if("socketpair", &[equal(0, UNIX)]));
    rules.extend(FAMILIES.map(|family| allowed_if("socket", &[equal(0, family)])));
    rules.push(allowed_if("socket", &[equal(0, NETLINK.0), equal(2, NETLINK.1)]));
    rules.extend(PERSONALITIES.map(|personality| allowed_if("personality", &[equal(0, personality)])));
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": EPERM,
        // Calls of other architectures, which most kernels take too, end their process. Those of x32, which are numbers of
        // this architecture with one bit more, do not exist by the guest's filter.
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X32"]},
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
        ],
        "syscalls": rules,
    })
}

fn allowed_if(name: &str, arguments: &[Value]) -> Value {
    json!({"names": [name], "action": "SCMP_ACT_ALLOW", "args": arguments})
}

fn equal(index: u32, value: u64) -> Value {
    json!({"index": index, "value": value, "op": "SCMP_CMP_EQ"})
}

fn masked(index: u32, mask: u64, value: u64) -> Value {
    json!({"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order_and_nothing_of_it_is_refused() {
        assert!(ALLOWED.is_sorted_by(|one, next| one < next));
        for name in NOT_THERE.into_iter().chain([
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
            "clone",
            "socket",
            "personality",
        ]) {
            assert!(!ALLOWED.contains(&name), "{name}");
        }
    }

    #[test]
    fn what_the_guest_closes_itself_in_by_is_allowed() {
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
            assert!(ALLOWED.contains(&name), "{name}");
        }
    }

    #[test]
    fn whatever_takes_permission_bits_has_a_condition() {
        for (name, _) in MODES {
            assert!(!ALLOWED.contains(&name), "{name}");
        }
        for (name, _, _) in OPENING {
            assert!(!ALLOWED.contains(&name), "{name}");
        }
        assert!(!ALLOWED.contains(&"pidfd_send_signal"));
        // As the guest's filter has them.
        let flags = rustix::fs::OFlags::CREATE
            | rustix::fs::OFlags::TMPFILE.difference(rustix::fs::OFlags::DIRECTORY);
        assert_eq!(u64::from(flags.bits()), MAKES_A_FILE);
    }

    #[test]
    fn the_flags_are_those_of_all_namespaces() {
        // Mounts, control groups, names, messages, users, processes, network.
        let flags =
            [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
        assert_eq!(flags.iter().fold(0, |all, flag| all | flag), NEW_NAMESPACES);
    }
}
