//! The table, by what becomes of calls that attackers and programs make.

use std::collections::BTreeSet;

use super::super::seccomp_bpf::tests::{Call, run};
use super::*;

const GUEST: i32 = 1;

fn result(guest: i32, number: c_long, arguments: &[u64]) -> (Action, usize) {
    let program = filter(guest, Preallocation::Refused).expect("a known architecture");
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let number = u32::try_from(number).expect("a number");
    run(&program, &Call { number, architecture: ARCHITECTURE.expect("known"), arguments: all })
}

#[track_caller]
fn check(number: c_long, arguments: &[u64], expected: Action) {
    assert_eq!(result(GUEST, number, arguments).0, expected, "call {number} {arguments:x?}");
}

/// A negative number, as programs pass it: in 32 or in 64 bits.
fn minus(number: u64) -> [u64; 2] {
    let wide = number.wrapping_neg();
    [wide, wide & 0xffff_ffff]
}

const REFUSED: Action = Action::Fail(EPERM);
const MISSING: Action = Action::Fail(ENOSYS);

#[test]
fn no_number_is_named_twice_and_none_is_unknown() {
    let mut seen = BTreeSet::new();
    for (number, _) in decisions(GUEST, Preallocation::Refused) {
        assert!(number < UNKNOWN_FROM, "call {number}");
        assert!(seen.insert(number), "call {number} has two decisions");
    }
    assert_eq!(
        seen.len(),
        NOT_PERMITTED.len() + NOT_IMPLEMENTED.len() + by_argument(1, Preallocation::Refused).len(),
        "no number is negative"
    );
}

#[test]
fn other_processes_are_neither_limited_nor_rescheduled() {
    for number in [libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr] {
        check(number, &[0, 7, 7], Action::Allow);
        check(number, &[1, 7, 7], REFUSED);
        check(number, &[4711, 7, 7], REFUSED);
        // The kernel looks at 32 bits only.
        check(number, &[1 << 32, 7, 7], Action::Allow);
    }
    check(libc::SYS_sched_setaffinity, &[0, 8, 8], Action::Allow);
    check(libc::SYS_sched_setaffinity, &[4711, 8, 8], Action::Allow);
    check(libc::SYS_sched_setaffinity, &[1, 8, 8], REFUSED);
    check(libc::SYS_sched_setaffinity, &[7 << 32 | 1, 8, 8], REFUSED);

    check(libc::SYS_prlimit64, &[0, 7, 0xffff_8000_0000_0000, 0], Action::Allow);
    check(libc::SYS_prlimit64, &[1, 7, 0, 0x1000], Action::Allow);
    check(libc::SYS_prlimit64, &[1, 7, 0x1000, 0], REFUSED);
    // A pointer of which only the upper half is set.
    check(libc::SYS_prlimit64, &[1, 7, 0x7f00_0000_0000, 0], REFUSED);
    check(libc::SYS_prlimit64, &[4711, 7, 0x1000, 0], REFUSED);

    for (number, [process, group, user]) in
        [(libc::SYS_setpriority, [0, 1, 2]), (libc::SYS_ioprio_set, [1, 2, 3])]
    {
        check(number, &[process, 0, 5], Action::Allow);
        check(number, &[group, 0, 5], Action::Allow);
        check(number, &[process, 1, 5], REFUSED);
        check(number, &[group, 1, 5], REFUSED);
        // The user's processes are all, the guest included; and 0 means this user.
        check(number, &[user, 0, 5], REFUSED);
        check(number, &[user, 1000, 5], REFUSED);
    }
}

#[test]
fn the_guest_is_not_signalled() {
    let kill = libc::SYS_kill;
    check(kill, &[1, 15], REFUSED);
    check(kill, &[0, 15], Action::Allow);
    check(kill, &[4711, 9], Action::Allow);
    for everybody in minus(1) {
        check(kill, &[everybody, 9], REFUSED);
    }
    for group in minus(4711) {
        check(kill, &[group, 9], Action::Allow);
        assert_eq!(result(4711, kill, &[group, 9]).0, REFUSED, "the group of the guest");
    }
    assert_eq!(result(4711, kill, &[4711, 9]).0, REFUSED);
    assert_eq!(result(4711, kill, &[1, 9]).0, Action::Allow);
    check(libc::SYS_tkill, &[1, 15], REFUSED);
    check(libc::SYS_tkill, &[7, 15], Action::Allow);
    check(libc::SYS_tgkill, &[1, 1, 15], REFUSED);
    check(libc::SYS_tgkill, &[7, 7, 15], Action::Allow);
    check(libc::SYS_tgkill, &[minus(1)[1], 1, 15], REFUSED);
    check(libc::SYS_rt_sigqueueinfo, &[1, 15, 0x1000], REFUSED);
    check(libc::SYS_rt_sigqueueinfo, &[7, 15, 0x1000], Action::Allow);
    check(libc::SYS_rt_tgsigqueueinfo, &[1, 1, 15, 0x1000], REFUSED);
    check(libc::SYS_rt_tgsigqueueinfo, &[7, 7, 15, 0x1000], Action::Allow);
    check(libc::SYS_pidfd_send_signal, &[5, 15, 0, 0], Action::Allow);
    check(libc::SYS_pidfd_send_signal, &[5, 15, 0, 2], Action::Allow);
    // A group.
    check(libc::SYS_pidfd_send_signal, &[5, 15, 0, 4], REFUSED);
    check(libc::SYS_pidfd_send_signal, &[5, 15, 0x7f00_0000_0000, 0], REFUSED);
    check(libc::SYS_pidfd_send_signal, &[5, 15, 0x1000, 0], REFUSED);
}

#[test]
fn no_namespace_is_made() {
    check(libc::SYS_unshare, &[libc::CLONE_NEWUSER as u64], REFUSED);
    check(libc::SYS_setns, &[3, 0], REFUSED);
    check(libc::SYS_clone3, &[0x1000, 88], MISSING);
    // A fork, a thread, and `vfork`.
    for flags in [0x0120_0011, 0x003d_0f00, 0x4111] {
        check(libc::SYS_clone, &[flags], Action::Allow);
        for bit in [17, 25, 26, 27, 28, 29, 30] {
            check(libc::SYS_clone, &[flags | 1 << bit], REFUSED);
        }
    }
}

#[test]
fn nothing_becomes_a_program_of_its_owner() {
    for mode in [0, 0o644, 0o755, 0o1777] {
        check(libc::SYS_fchmod, &[3, mode], Action::Allow);
        check(libc::SYS_fchmodat, &[3, 0xffff, mode], Action::Allow);
        check(FCHMODAT2, &[3, 0xffff, mode, 0], Action::Allow);
        for other in [0o4000, 0o2000, 0o6000] {
            check(libc::SYS_fchmod, &[3, mode | other], REFUSED);
            check(libc::SYS_fchmodat, &[3, 0xffff, mode | other], REFUSED);
            check(FCHMODAT2, &[3, 0xffff, mode | other, 0], REFUSED);
            #[cfg(target_arch = "x86_64")]
            check(libc::SYS_chmod, &[0xffff, mode | other], REFUSED);
        }
    }
}

#[test]
fn nor_is_it_made_so() {
    let (creates, unnamed) = (libc::O_CREAT as u64, libc::O_TMPFILE as u64);
    for mode in [0, 0o644, 0o1777] {
        for other in [0o4000, 0o2000, 0o6000] {
            for flags in [creates, unnamed] {
                check(libc::SYS_openat, &[3, 0xffff, flags, mode], Action::Allow);
                check(libc::SYS_openat, &[3, 0xffff, flags, mode | other], REFUSED);
                #[cfg(target_arch = "x86_64")]
                check(libc::SYS_open, &[0xffff, flags, mode | other], REFUSED);
            }
            // It makes nothing.
            check(libc::SYS_openat, &[3, 0xffff, libc::O_DIRECTORY as u64, mode | other], Action::Allow);
            check(libc::SYS_mknodat, &[3, 0xffff, 0o10_0000 | mode | other], REFUSED);
            #[cfg(target_arch = "x86_64")]
            for call in [libc::SYS_creat, libc::SYS_mknod] {
                check(call, &[0xffff, mode], Action::Allow);
                check(call, &[0xffff, mode | other], REFUSED);
            }
        }
    }
    let program = filter_for_commands().expect("a known architecture");
    let outcome = |number: c_long| {
        let number = u32::try_from(number).expect("a number");
        run(&program, &Call { number, architecture: ARCHITECTURE.expect("known"), arguments: [0; 6] }).0
    };
    assert_eq!(outcome(libc::SYS_openat2), MISSING);
    assert_eq!(outcome(libc::SYS_openat), Action::Allow);
}

#[test]
fn sockets_are_of_few_families() {
    let no_family = Action::Fail(EAFNOSUPPORT);
    let no_protocol = Action::Fail(EPROTONOSUPPORT);
    for family in 0..64 {
        let expected = if [1, 2, 10, 16].contains(&family) { Action::Allow } else { no_family };
        check(libc::SYS_socket, &[family, 1, 0], expected);
        let expected = if family == 1 { Action::Allow } else { no_family };
        check(libc::SYS_socketpair, &[family, 1, 0, 0x1000], expected);
    }
    check(libc::SYS_socket, &[u64::from(u32::MAX), 1, 0], no_family);
    for protocol in 1..64 {
        check(libc::SYS_socket, &[16, 3, protocol], no_protocol);
    }
    for protocol in 0..300 {
        let expected = if [0, 1, 6, 17, 58, 136].contains(&protocol) { Action::Allow } else { no_protocol };
        check(libc::SYS_socket, &[2, 1, protocol], expected);
        check(libc::SYS_socket, &[10, 2, protocol], expected);
    }
}

#[test]
fn what_is_looked_at_closer() {
    for (personality, expected) in [
        (0, Action::Allow),
        (0x8, Action::Allow),
        (u64::from(u32::MAX), Action::Allow),
        (u64::MAX, Action::Allow),
        // No address randomization; executable data.
        (0x4_0000, REFUSED),
        (0x40_0000, REFUSED),
    ] {
        check(libc::SYS_personality, &[personality], expected);
    }
    check(libc::SYS_ioctl, &[0, 0x5412, 0x1000], REFUSED);
    check(libc::SYS_ioctl, &[0, 1 << 32 | 0x5412, 0x1000], REFUSED);
    check(libc::SYS_ioctl, &[0, 0x541c, 0x1000], REFUSED);
    check(libc::SYS_ioctl, &[0, 0x5423, 0x1000], REFUSED);
    check(libc::SYS_ioctl, &[0, 0x5401, 0x1000], Action::Allow);
    // `BTRFS_IOC_SUBVOL_CREATE`, `BTRFS_IOC_SNAP_CREATE_V2`, and copies of whole files.
    for request in [0x5000_940e, 0x5000_9417, 1 << 32 | 0x5000_940e] {
        check(libc::SYS_ioctl, &[3, request, 0x1000], Action::Fail(ENOTTY));
    }
    for request in [0x4004_9409, 0x4020_940d, 0xc018_9436] {
        check(libc::SYS_ioctl, &[3, request, 0x1000], Action::Allow);
    }
}

#[test]
fn calls_of_the_future_and_of_x32_do_not_exist() {
    for number in [470, 471, 500, 0x3fff_ffff, 0x4000_0000, 0x4000_0001, 0xffff_fffe] {
        check(number, &[0, 0], MISSING);
    }
}

#[test]
fn what_programs_do_all_the_time_is_allowed_after_few_steps() {
    for number in [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_openat,
        libc::SYS_execve,
        libc::SYS_futex,
        libc::SYS_mmap,
        libc::SYS_wait4,
        libc::SYS_memfd_create,
        libc::SYS_landlock_create_ruleset,
        libc::SYS_seccomp,
        libc::SYS_prctl,
    ] {
        let (action, steps) = result(GUEST, number, &[]);
        assert_eq!(action, Action::Allow, "call {number}");
        assert!(steps <= 14, "call {number} takes {steps} steps");
    }
}

#[test]
fn space_on_the_disk_is_had_by_writing_where_the_guest_watches_over_it() {
    const UNSUPPORTED: Action = Action::Fail(EOPNOTSUPP);
    // Plain, beyond the end of the file, as zeros, for what is shared, within the file.
    for mode in [0, 0x1, 0x10, 0x40, 0x20] {
        check(libc::SYS_fallocate, &[3, mode, 0, 1 << 34], UNSUPPORTED);
    }
    for mode in [0x3, 0x8] {
        check(libc::SYS_fallocate, &[3, mode, 0, 1 << 34], Action::Allow);
    }
    for request in FILE_SPACE {
        check(libc::SYS_ioctl, &[3, u64::from(*request), 0x1000], UNSUPPORTED);
    }
    check(FILE_SETATTR, &[3, 0, 0x1000, 32, 0], MISSING);

    let unlimited = filter(GUEST, Preallocation::Allowed).expect("a known architecture");
    let arguments = [3, 0, 0, 1 << 34, 0, 0];
    let number = u32::try_from(libc::SYS_fallocate).expect("a number");
    let call = Call { number, architecture: ARCHITECTURE.expect("known"), arguments };
    assert_eq!(run(&unlimited, &call).0, Action::Allow);
}
