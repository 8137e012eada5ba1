//! Namespaces, mounts and privileges: calls that rustix lacks, or offers only as unsafe.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::process::Pid;
use rustix::thread::UnshareFlags;

use super::process::last_errno;

/// Moves this process, or its next children, into new namespaces.
pub(crate) fn unshare(namespaces: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: the unsafe flags unshare state between threads, and the program has one thread.
    unsafe { rustix::thread::unshare_unsafe(namespaces) }
}

/// Forks a process that only holds a user namespace of its own. It ends when it is killed, or when this process
/// dies.
pub(crate) fn fork_user_namespace() -> Result<Pid, Errno> {
    let parent = rustix::process::getpid();
    let flags = libc::c_ulong::from((libc::CLONE_NEWUSER | libc::SIGCHLD).cast_unsigned());
    // SAFETY: this is a fork: no memory is shared and no stack is given. The child makes only system calls. glibc
    // does not learn of the fork, so its idea of the current process is wrong in the child. The child does not use
    // it.
    let forked = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if forked < 0 {
        return Err(last_errno());
    }
    if let Some(pid) = i32::try_from(forked).ok().and_then(Pid::from_raw) {
        return Ok(pid);
    }
    // SAFETY: system calls that touch no memory. The parent may have died before the first of them; the loop checks
    // that.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        while libc::getppid() == parent.as_raw_nonzero().get() {
            libc::pause();
        }
        libc::_exit(0)
    }
}

/// A change of a mount. It also makes the mount private: it neither propagates mounts nor receives any.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MountChange<'a> {
    /// The attributes to set.
    pub(crate) set: MountAttrFlags,
    /// The user namespace for the ID mapping of file owners.
    pub(crate) owners: Option<BorrowedFd<'a>>,
}

/// Whether the change includes the mounts below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountDepth {
    Recursive,
    Single,
}

/// Changes a mount.
pub(crate) fn change_mount(
    mount: BorrowedFd<'_>,
    depth: MountDepth,
    change: MountChange<'_>,
) -> Result<(), Errno> {
    let attributes = libc::mount_attr {
        attr_set: u64::from(change.set.bits())
            | if change.owners.is_some() { libc::MOUNT_ATTR_IDMAP } else { 0 },
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: change.owners.map_or(0, |owners| u64::from(owners.as_raw_fd().unsigned_abs())),
    };
    let recursive = if depth == MountDepth::Recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty string. The structure lives until after the call, and its size is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            ptr::from_ref(&attributes),
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Enables the loopback interface of this network namespace.
pub(crate) fn switch_loopback_on() -> Result<(), Errno> {
    // SAFETY: the call opens a descriptor, which is checked and has no other owner.
    let socket = unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(last_errno());
        }
        OwnedFd::from_raw_fd(socket)
    };
    // SAFETY: all zeros are a valid value of this structure of integers. Its name ends in a zero.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the structure has the type of this request, and lives until after the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if result < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Removes every capability from the bounding set of this process.
pub(crate) fn clear_bounding_set() -> Result<(), Errno> {
    for capability in 0..64 {
        // SAFETY: the call takes numbers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } < 0 {
            return match last_errno() {
                // The first number that the kernel does not know.
                Errno::INVAL if capability > 0 => Ok(()),
                errno => Err(errno),
            };
        }
    }
    Ok(())
}

/// Closes all descriptors from `first` on, whoever owns them.
///
/// Call it only in two situations. At the very start, the parent process left these descriptors open. At the end,
/// nothing is opened or used any more.
pub(crate) fn close_from(first: u32) {
    // SAFETY: nothing in this program owns a descriptor in this range, or its owner is never used again (see above).
    if unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) } < 0 {
        // Kernels before 5.9 lack this call. They cannot run a jail anyway, because they lack `mount_setattr`.
    }
}
