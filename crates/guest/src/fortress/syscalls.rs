//! Which system calls commands may not make, and what they are told instead.
//!
//! A list of what is refused, not of what is allowed: commands are whatever a skill brings, and must run as on any
//! machine. Three things keep such a list tight: calls with numbers later than those known here do not exist for
//! commands, families of sockets are listed by what is allowed, and calls of other architectures kill their process.
//!
//! Where programs fall back when a call does not exist, it does not exist (`ENOSYS`); else it is not permitted
//! (`EPERM`), or a family of sockets is not supported (`EAFNOSUPPORT`, `EPROTONOSUPPORT`).
//!
//! Where the guest watches over a quota, space on the disk is had by writing only ([`Preallocation`]): the file system
//! does not support anything else (`EOPNOTSUPP`), as many do not. `posix_fallocate` of the C library writes then.
//!
//! The filter cannot know the number of the process that calls. So where a call takes a process and 0 means the
//! caller, only 0 is permitted: `setpriority(PRIO_PROCESS, getpid(), …)` is refused, `setpriority(PRIO_PROCESS, 0, …)`
//! is not. Libraries and shells use 0. Two are milder, because programs do name their own threads in them and nothing
//! but reading or a hint to the scheduler is had: `prlimit64` that only reads, and `sched_setaffinity`, of which only
//! the guest's own number is refused.

use libc::c_long;

use super::bpf::{self, Action, Decision, Half, Instruction};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;

/// From this number on, calls are not known here (Linux 6.18 has 470). On x86-64, those of x32 are among them.
const UNKNOWN_FROM: u32 = 470;

/// Calls that administer the machine, make or enter namespaces, mount, look into other processes, load code into the
/// kernel, or open a part of it that programs do without.
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
    // Keys, which are those of the host's user.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Parts of the kernel that have let attackers in often, and that programs do without.
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

/// Calls that programs do without when they do not exist.
const NOT_THERE: &[c_long] = &[
    // Its flags lie in memory, where no filter sees them; libraries fall back to `clone`.
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // They tell where on the host what is mounted comes from.
    STATMOUNT,
    LISTMOUNT,
    // It sets how much the file system takes for each byte that is written.
    FILE_SETATTR,
];

// Not in every `libc`. From 424 on, all architectures have the same numbers.
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
const EOPNOTSUPP: u16 = libc::EOPNOTSUPP as u16;
const EAFNOSUPPORT: u16 = libc::EAFNOSUPPORT as u16;
const EPROTONOSUPPORT: u16 = libc::EPROTONOSUPPORT as u16;

/// Whether a command may take space on the disk without writing to it: 16 GiB take no longer than one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preallocation {
    /// It may: nothing limits space, or the kernel does.
    Allowed,
    /// It may not: it would outrun who watches over the quota.
    Refused,
}

/// The filter for all that descends from the process `guest`, and for it itself; `None` on an architecture whose
/// numbers are not known here.
pub(super) fn filter(guest: i32, preallocation: Preallocation) -> Option<Vec<Instruction>> {
    let architecture = ARCHITECTURE?;
    Some(bpf::assemble(architecture, decisions(guest, preallocation), beyond()))
}

/// What commands are put under besides, and the guest is not: `openat2`, by which the guest keeps within its folders, takes
/// the mode of a new file in memory, where no filter sees it. Programs fall back to `openat`.
pub(super) fn filter_for_commands() -> Option<Vec<Instruction>> {
    let openat2 = u32::try_from(libc::SYS_openat2).ok()?;
    Some(bpf::assemble(ARCHITECTURE?, vec![(openat2, Decision::fail(ENOSYS))], beyond()))
}

/// What happens to calls that this guest does not know.
fn beyond() -> (u32, Decision) {
    (UNKNOWN_FROM, Decision::fail(ENOSYS))
}

fn decisions(guest: i32, preallocation: Preallocation) -> Vec<(u32, Decision)> {
    let refused = NOT_PERMITTED.iter().map(|&call| (call, Decision::fail(EPERM)));
    let missing = NOT_THERE.iter().map(|&call| (call, Decision::fail(ENOSYS)));
    refused
        .chain(missing)
        .chain(by_argument(guest.cast_unsigned(), preallocation))
        .filter_map(|(call, decision)| Some((u32::try_from(call).ok()?, decision)))
        .collect()
}

/// Calls whose arguments decide.
fn by_argument(guest: u32, preallocation: Preallocation) -> Vec<(c_long, Decision)> {
    let first = Half::Low(0);
    let second = Half::Low(1);
    let third = Half::Low(2);
    let allow = Decision::ALLOW;
    let refuse = Decision::fail(EPERM);
    let only_itself = refuse.clone().unless(first, &[0], &allow);
    let not_the_guest = allow.clone().unless(first, &[guest], &refuse);

    // A group or user names the guest, too.
    let own = |itself: &[i32]| {
        let whose: Vec<u32> = itself.iter().map(|which| which.cast_unsigned()).collect();
        refuse.clone().unless(first, &whose, &refuse.clone().unless(second, &[0], &allow))
    };

    // All processes, and the group of the guest, which for process 1 is the same number.
    let groups = [u32::MAX, guest.wrapping_neg()];

    let to_one = Decision::If {
        half: Half::Low(3),
        mask: !(PIDFD_SIGNAL_THREAD | PIDFD_SIGNAL_THREAD_GROUP),
        is: 0,
        then: Box::new(allow.clone()),
        otherwise: Box::new(refuse.clone()),
    };

    // What is set-user-ID in the workspace is so on the host, where its owner is the host's user. A file that is made so
    // may keep it: an access list gives its group the right to execute without another look at the mode.
    let no_other_user = |mode: u8| Decision::If {
        half: Half::Low(mode),
        mask: OTHER_USER,
        is: 0,
        then: Box::new(allow.clone()),
        otherwise: Box::new(refuse.clone()),
    };

    // Without these flags the mode is what happens to lie in the register.
    let makes_no_other_user = |flags: u8, mode: u8| Decision::If {
        half: Half::Low(flags),
        mask: MAKES_A_FILE,
        is: 0,
        then: Box::new(allow.clone()),
        otherwise: Box::new(no_other_user(mode)),
    };
    // Making room within a file takes nothing.
    let unsupported = Decision::fail(EOPNOTSUPP);
    let (fallocate, file_space) = match preallocation {
        Preallocation::Allowed => (allow.clone(), allow.clone()),
        Preallocation::Refused => (unsupported.clone().unless(second, MAKING_ROOM, &allow), unsupported),
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
            Decision::If {
                half: first,
                mask: NEW_NAMESPACES,
                is: 0,
                then: Box::new(allow.clone()),
                otherwise: Box::new(refuse.clone()),
            },
        ),
        // To set a limit takes one in the third argument; to read another's does no harm.
        (
            libc::SYS_prlimit64,
            refuse.clone().unless(third, &[0], &refuse.clone().unless(Half::High(2), &[0], &allow)).unless(
                first,
                &[0],
                &allow,
            ),
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
        // With details of the sender's making, which the kernel drops when too many signals wait: then nobody can tell
        // it from one that the host sent. And to a group, by any of its members: that of the guest has its processes.
        (
            libc::SYS_pidfd_send_signal,
            refuse.clone().unless(third, &[0], &refuse.clone().unless(Half::High(2), &[0], &to_one)),
        ),
        // The plain Linux, and 32-bit addresses' absence; what else it switches weakens the process.
        (libc::SYS_personality, refuse.clone().unless(first, PERSONALITIES, &allow)),
        // Typing into a terminal for others, and what loads code into the kernel for one.
        (
            libc::SYS_ioctl,
            allow.clone().unless(second, TERMINAL_TRICKS, &refuse).unless(second, FILE_SPACE, &file_space),
        ),
        (libc::SYS_fallocate, fallocate),
        (libc::SYS_socket, sockets()),
        (libc::SYS_socketpair, no_family().unless(first, &[libc::AF_UNIX as u32], &allow)),
    ]
}

/// The flags of `clone` that make namespaces.
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// The permission bits by which a program runs as its owner or its group.
const OTHER_USER: u32 = libc::S_ISUID | libc::S_ISGID;

/// The flags of `open` by which it makes a file, with a name or without.
const MAKES_A_FILE: u32 = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;

/// The flags of `pidfd_send_signal` that name one thread, or one process.
const PIDFD_SIGNAL_THREAD: u32 = 1;
const PIDFD_SIGNAL_THREAD_GROUP: u32 = 1 << 1;

const IOPRIO_WHO_PROCESS: i32 = 1;
const IOPRIO_WHO_PGRP: i32 = 2;

/// `PER_LINUX` and `PER_LINUX32`, each also with the version of Linux 2.6, and the question what it is.
const PERSONALITIES: &[u32] = &[0, 0x8, 0x2_0000, 0x2_0008, u32::MAX];

/// `TIOCSTI`, `TIOCLINUX`, `TIOCSETD`.
const TERMINAL_TRICKS: &[u32] = &[0x5412, 0x541c, 0x5423];

/// `FALLOC_FL_KEEP_SIZE` with `FALLOC_FL_PUNCH_HOLE`; `FALLOC_FL_COLLAPSE_RANGE`.
const MAKING_ROOM: &[u32] = &[0x3, 0x8];

/// `FS_IOC_RESVSP`, `FS_IOC_RESVSP64`, `FS_IOC_ZERO_RANGE`: `fallocate` by other names. `FS_IOC_FSSETXATTR`: how much the file
/// system takes for each byte that is written.
const FILE_SPACE: &[u32] = &[0x4030_5828, 0x4030_582a, 0x4030_5839, 0x401c_5820];

/// The protocols of the Internet that programs use: the family's own, ICMP, TCP, UDP, ICMPv6, UDP-Lite.
const PROTOCOLS: &[u32] = &[0, 1, 6, 17, 58, 136];

fn no_family() -> Decision {
    Decision::fail(EAFNOSUPPORT)
}

/// Unix and the Internet, and of netlink the routes, by which libraries ask for the own addresses.
fn sockets() -> Decision {
    let family = Half::Low(0);
    let protocol = Half::Low(2);
    let no_protocol = Decision::Always(Action::Fail(EPROTONOSUPPORT));
    let internet = no_protocol.clone().unless(protocol, PROTOCOLS, &Decision::ALLOW);
    let netlink = no_protocol.unless(protocol, &[libc::NETLINK_ROUTE as u32], &Decision::ALLOW);
    no_family()
        .unless(family, &[libc::AF_NETLINK as u32], &netlink)
        .unless(family, &[libc::AF_INET as u32, libc::AF_INET6 as u32], &internet)
        .unless(family, &[libc::AF_UNIX as u32], &Decision::ALLOW)
}

#[cfg(test)]
mod tests;
