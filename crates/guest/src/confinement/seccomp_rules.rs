//! Which system calls are refused to commands, and with which error.
//!
//! The list names refused calls, not allowed ones, because a skill may bring any program, and it must run as on
//! any machine. Three rules make the list strict: unknown call numbers do not exist for commands, socket families
//! are listed by what is allowed, and calls of other architectures kill the process.
//!
//! Where programs have a fallback for a missing call, the error is `ENOSYS`. Otherwise it is `EPERM`, or for
//! socket families `EAFNOSUPPORT` and `EPROTONOSUPPORT`.
//!
//! When the guest monitors a quota, preallocation is refused ([`Preallocation`]) with `EOPNOTSUPP`, as many file
//! systems do. `posix_fallocate` of the C library then writes zeros.
//!
//! The filter does not know the pid of the caller. So where a call takes a pid and 0 means the caller, only 0 is
//! allowed: `setpriority(PRIO_PROCESS, getpid(), …)` is refused, `setpriority(PRIO_PROCESS, 0, …)` is not.
//! Libraries and shells use 0. Two calls are less strict, because programs name their own threads in them, and
//! they only read or give a hint to the scheduler: `prlimit64` without a new limit, and `sched_setaffinity`, for
//! which only the guest's own pid is refused.

use libc::c_long;

use super::seccomp_bpf::{self, Action, ArgHalf, Instruction, SyscallDecision};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;

/// Call numbers from here on are unknown to the guest (Linux 6.18 has 470). On x86-64 they include those of x32.
const UNKNOWN_FROM: u32 = 470;

/// Calls that administer the machine, create or enter namespaces, mount, inspect other processes, load code into
/// the kernel, or open a part of it that programs do not need.
const NOT_PERMITTED: &[c_long] = &[
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // Namespaces.
    libc::SYS_unshare,
    libc::SYS_setns,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_migrate_pages,
    // Keys. They belong to the host's user.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Parts of the kernel that had many vulnerabilities, and that programs do not need.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_lookup_dcookie,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    KEXEC_FILE_LOAD,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_nfsservctl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_sysfs,
    #[cfg(target_arch = "x86_64")]
    libc::SYS__sysctl,
];

/// Calls for which programs have a fallback.
const NOT_IMPLEMENTED: &[c_long] = &[
    // Its flags are in memory, which a filter cannot read. Libraries fall back to `clone`.
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // They reveal the host paths of mounts.
    STATMOUNT,
    LISTMOUNT,
    // It changes how much disk space each written byte uses.
    FILE_SETATTR,
];

// Not every `libc` has these. From 424 on, all architectures share the numbers.
const STATMOUNT: c_long = 457;
const LISTMOUNT: c_long = 458;
const OPEN_TREE_ATTR: c_long = 467;
const FCHMODAT2: c_long = 452;
const FILE_SETATTR: c_long = 469;
#[cfg(target_arch = "aarch64")]
const KEXEC_FILE_LOAD: c_long = 294;
#[cfg(not(target_arch = "aarch64"))]
const KEXEC_FILE_LOAD: c_long = libc::SYS_kexec_file_load;

const EPERM: u16 = libc::EPERM as u16;
const ENOSYS: u16 = libc::ENOSYS as u16;
const ENOTTY: u16 = libc::ENOTTY as u16;
const EOPNOTSUPP: u16 = libc::EOPNOTSUPP as u16;
const EAFNOSUPPORT: u16 = libc::EAFNOSUPPORT as u16;
const EPROTONOSUPPORT: u16 = libc::EPROTONOSUPPORT as u16;

/// Whether a command may allocate disk space without writing. Allocating 16 GiB takes as long as allocating one
/// byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preallocation {
    /// Allowed: space is unlimited, or the kernel limits it.
    Allowed,
    /// Refused: it would be faster than the quota monitor.
    Refused,
}

/// Returns the filter for the guest, whose pid is `guest`, and its descendants. `None` when the architecture is
/// not supported.
pub(super) fn filter(guest: i32, preallocation: Preallocation) -> Option<Vec<Instruction>> {
    let architecture = ARCHITECTURE?;
    Some(seccomp_bpf::assemble(architecture, decisions(guest, preallocation), unknown_calls()))
}

/// Returns the additional filter for commands. It refuses `openat2`, whose file mode is in memory, which a filter
/// cannot read. Programs fall back to `openat`. The guest itself needs `openat2` to stay beneath its roots.
pub(super) fn filter_for_commands() -> Option<Vec<Instruction>> {
    let openat2 = u32::try_from(libc::SYS_openat2).ok()?;
    Some(seccomp_bpf::assemble(
        ARCHITECTURE?,
        vec![(openat2, SyscallDecision::fail(ENOSYS))],
        unknown_calls(),
    ))
}

/// The action for call numbers that this guest does not know.
fn unknown_calls() -> (u32, SyscallDecision) {
    (UNKNOWN_FROM, SyscallDecision::fail(ENOSYS))
}

fn decisions(guest: i32, preallocation: Preallocation) -> Vec<(u32, SyscallDecision)> {
    let refused = NOT_PERMITTED.iter().map(|&call| (call, SyscallDecision::fail(EPERM)));
    let missing = NOT_IMPLEMENTED.iter().map(|&call| (call, SyscallDecision::fail(ENOSYS)));
    refused
        .chain(missing)
        .chain(by_argument(guest.cast_unsigned(), preallocation))
        .filter_map(|(call, decision)| Some((u32::try_from(call).ok()?, decision)))
        .collect()
}

/// Calls whose arguments decide.
fn by_argument(guest: u32, preallocation: Preallocation) -> Vec<(c_long, SyscallDecision)> {
    let first = ArgHalf::Low(0);
    let second = ArgHalf::Low(1);
    let third = ArgHalf::Low(2);
    let allow = SyscallDecision::ALLOW;
    let refuse = SyscallDecision::fail(EPERM);
    let only_itself = refuse.clone().unless(first, &[0], &allow);
    let not_the_guest = allow.clone().unless(first, &[guest], &refuse);

    // A process group or user includes the guest.
    let own = |itself: &[i32]| {
        let whose: Vec<u32> = itself.iter().map(|which| which.cast_unsigned()).collect();
        refuse.clone().unless(first, &whose, &refuse.clone().unless(second, &[0], &allow))
    };

    // All processes, and the guest's process group. For process 1, both have the same number.
    let groups = [u32::MAX, guest.wrapping_neg()];

    let to_one = SyscallDecision::If {
        half: ArgHalf::Low(3),
        mask: !(PIDFD_SIGNAL_THREAD | PIDFD_SIGNAL_THREAD_GROUP),
        is: 0,
        then: Box::new(allow.clone()),
        otherwise: Box::new(refuse.clone()),
    };

    // A set-user-ID file in the workspace has the same effect on the host, if its owner is the host's user. A file
    // that is created with the bit may keep it: an access control list can grant the file's group the right to
    // execute it.
    let no_other_user = |mode: u8| SyscallDecision::If {
        half: ArgHalf::Low(mode),
        mask: OTHER_USER,
        is: 0,
        then: Box::new(allow.clone()),
        otherwise: Box::new(refuse.clone()),
    };

    // Without these flags, the mode argument is undefined.
    let makes_no_other_user = |flags: u8, mode: u8| SyscallDecision::If {
        half: ArgHalf::Low(flags),
        mask: MAKES_A_FILE,
        is: 0,
        then: Box::new(allow.clone()),
        otherwise: Box::new(no_other_user(mode)),
    };
    // Punching holes allocates no space.
    let unsupported = SyscallDecision::fail(EOPNOTSUPP);
    let (fallocate, file_space) = match preallocation {
        Preallocation::Allowed => (allow.clone(), allow.clone()),
        Preallocation::Refused => (unsupported.clone().unless(second, FREES_SPACE, &allow), unsupported),
    };

    let ioctl =
        allow.clone().unless(second, TERMINAL_TRICKS, &refuse).unless(second, FILE_SPACE, &file_space);
    // A subvolume is a file system of its own, and other such calls write without `write`. Other file systems have few
    // of them.
    let ioctl = SyscallDecision::If {
        half: second,
        mask: IOCTL_TYPE,
        is: BTRFS,
        then: Box::new(SyscallDecision::fail(ENOTTY).unless(second, SHARE_CONTENT, &allow)),
        otherwise: Box::new(ioctl),
    };

    vec![
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, makes_no_other_user(1, 2)),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_creat, no_other_user(1)),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, no_other_user(1)),
        (libc::SYS_openat, makes_no_other_user(2, 3)),
        (libc::SYS_mknodat, no_other_user(2)),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, no_other_user(1)),
        (libc::SYS_fchmod, no_other_user(1)),
        (libc::SYS_fchmodat, no_other_user(2)),
        (FCHMODAT2, no_other_user(2)),
        (
            libc::SYS_clone,
            SyscallDecision::If {
                half: first,
                mask: NEW_NAMESPACES,
                is: 0,
                then: Box::new(allow.clone()),
                otherwise: Box::new(refuse.clone()),
            },
        ),
        // Setting a limit needs the third argument. Reading another process's limit is harmless.
        (
            libc::SYS_prlimit64,
            refuse
                .clone()
                .unless(third, &[0], &refuse.clone().unless(ArgHalf::High(2), &[0], &allow))
                .unless(first, &[0], &allow),
        ),
        (libc::SYS_sched_setscheduler, only_itself.clone()),
        (libc::SYS_sched_setparam, only_itself.clone()),
        (libc::SYS_sched_setattr, only_itself.clone()),
        (libc::SYS_move_pages, only_itself),
        (libc::SYS_sched_setaffinity, not_the_guest.clone()),
        (libc::SYS_setpriority, own(&[libc::PRIO_PROCESS as i32, libc::PRIO_PGRP as i32])),
        (libc::SYS_ioprio_set, own(&[IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP])),
        (libc::SYS_kill, not_the_guest.clone().unless(first, &groups, &refuse)),
        (libc::SYS_tkill, not_the_guest.clone()),
        (libc::SYS_tgkill, not_the_guest.clone().unless(second, &[guest], &refuse)),
        (libc::SYS_rt_sigqueueinfo, not_the_guest.clone()),
        (libc::SYS_rt_tgsigqueueinfo, not_the_guest.unless(second, &[guest], &refuse)),
        // Signals with a `siginfo`: the sender chooses its content, and the kernel drops it when too many signals are
        // queued. Then the guest could not tell such a signal from one of the host. The same applies to a process
        // group, because the guest belongs to its own group.
        (
            libc::SYS_pidfd_send_signal,
            refuse.clone().unless(third, &[0], &refuse.clone().unless(ArgHalf::High(2), &[0], &to_one)),
        ),
        // Plain Linux with 32-bit addresses off. Other flags weaken the process.
        (libc::SYS_personality, refuse.clone().unless(first, PERSONALITIES, &allow)),
        (libc::SYS_ioctl, ioctl),
        (libc::SYS_fallocate, fallocate),
        (libc::SYS_socket, sockets()),
        (libc::SYS_socketpair, no_family().unless(first, &[libc::AF_UNIX as u32], &allow)),
    ]
}

/// The flags of `clone` that create namespaces.
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// The permission bits by which a program runs as its owner or its group.
const OTHER_USER: u32 = libc::S_ISUID | libc::S_ISGID;

/// The flags of `open` that create a file, with or without a name.
const MAKES_A_FILE: u32 = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;

/// The flags of `pidfd_send_signal` that select one thread, or one process.
const PIDFD_SIGNAL_THREAD: u32 = 1;
const PIDFD_SIGNAL_THREAD_GROUP: u32 = 1 << 1;

const IOPRIO_WHO_PROCESS: i32 = 1;
const IOPRIO_WHO_PGRP: i32 = 2;

/// `PER_LINUX` and `PER_LINUX32`, each also with the version of Linux 2.6, and the query of the current value.
const PERSONALITIES: &[u32] = &[0, 0x8, 0x2_0000, 0x2_0008, u32::MAX];

/// The bits of an `ioctl` number that say to which part of the kernel it belongs, and their value for Btrfs.
const IOCTL_TYPE: u32 = 0xff00;
const BTRFS: u32 = 0x9400;

/// `FICLONE`, `FICLONERANGE`, `FIDEDUPERANGE`: calls of Btrfs that other file systems have, too.
const SHARE_CONTENT: &[u32] = &[0x4004_9409, 0x4020_940d, 0xc018_9436];

/// `TIOCSTI`, `TIOCLINUX`, `TIOCSETD`: they inject terminal input, and load a line discipline into the kernel.
const TERMINAL_TRICKS: &[u32] = &[0x5412, 0x541c, 0x5423];

/// `FALLOC_FL_KEEP_SIZE` with `FALLOC_FL_PUNCH_HOLE`; `FALLOC_FL_COLLAPSE_RANGE`.
const FREES_SPACE: &[u32] = &[0x3, 0x8];

/// `FS_IOC_RESVSP`, `FS_IOC_RESVSP64`, `FS_IOC_ZERO_RANGE`, `XFS_IOC_ALLOCSP`, `XFS_IOC_ALLOCSP64`: other names of
/// `fallocate`. `FS_IOC_FSSETXATTR` changes how much disk space each written byte uses.
const FILE_SPACE: &[u32] = &[0x4030_5828, 0x4030_582a, 0x4030_5839, 0x4030_580a, 0x4030_5824, 0x401c_5820];

/// The Internet protocols that programs use: the family's default, ICMP, TCP, UDP, ICMPv6, UDP-Lite.
const PROTOCOLS: &[u32] = &[0, 1, 6, 17, 58, 136];

fn no_family() -> SyscallDecision {
    SyscallDecision::fail(EAFNOSUPPORT)
}

/// Unix and Internet sockets, and netlink routes, by which libraries find the local addresses.
fn sockets() -> SyscallDecision {
    let family = ArgHalf::Low(0);
    let protocol = ArgHalf::Low(2);
    let no_protocol = SyscallDecision::Always(Action::Fail(EPROTONOSUPPORT));
    let internet = no_protocol.clone().unless(protocol, PROTOCOLS, &SyscallDecision::ALLOW);
    let netlink = no_protocol.unless(protocol, &[libc::NETLINK_ROUTE as u32], &SyscallDecision::ALLOW);
    no_family()
        .unless(family, &[libc::AF_NETLINK as u32], &netlink)
        .unless(family, &[libc::AF_INET as u32, libc::AF_INET6 as u32], &internet)
        .unless(family, &[libc::AF_UNIX as u32], &SyscallDecision::ALLOW)
}

#[cfg(test)]
mod tests;
