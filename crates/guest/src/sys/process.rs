//! New processes: a fork of this program with chosen descriptors, and a program spawned from such a fork.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::Errno;
use rustix::process::Pid;

/// Ends the process when a panic unwinds out of a forked child, which must never come back into the code of
/// its parent.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        exit_now(101);
    }
}

/// Forks this process. The child owns `descriptors` as 0, 1, 2, … in this order, and no others; those above 2
/// are closed on exec. It runs `child` on them and exits with its result.
///
/// All other descriptors are closed in the child, so `child` must not use any that it captured.
pub(crate) fn fork(
    descriptors: &[BorrowedFd<'_>],
    child: impl FnOnce(Vec<OwnedFd>) -> u8,
) -> Result<Pid, Errno> {
    // SAFETY: the program has one thread, so the child's memory is a consistent copy, with no lock held by a
    // thread that does not exist in it; it may allocate and run any code.
    let forked = unsafe { libc::fork() };
    if forked < 0 {
        return Err(last_errno());
    }
    if let Some(pid) = Pid::from_raw(forked) {
        return Ok(pid);
    }
    let guard = AbortOnUnwind;
    let status = match keep_only(descriptors) {
        Ok(owned) => child(owned),
        Err(_) => 102,
    };
    std::mem::forget(guard);
    exit_now(i32::from(status))
}

/// Makes `descriptors` the only ones of this process.
///
/// Only for a freshly forked child: it closes descriptors that are owned elsewhere. Their owners are never
/// dropped, because such a child leaves by `_exit` and does not return to the code that holds them.
fn keep_only(descriptors: &[BorrowedFd<'_>]) -> Result<Vec<OwnedFd>, Errno> {
    let count = RawFd::try_from(descriptors.len()).map_err(|_| Errno::MFILE)?;
    let mut sources = Vec::with_capacity(descriptors.len());
    for (target, descriptor) in (0..).zip(descriptors) {
        let source = descriptor.as_raw_fd();
        // One that lies where another will be put is moved out of the way first.
        if source < count && source != target {
            sources.push(check(
                // SAFETY: duplicating a descriptor touches no memory.
                unsafe { libc::fcntl(source, libc::F_DUPFD_CLOEXEC, count) },
            )?);
        } else {
            sources.push(source);
        }
    }
    let mut owned = Vec::with_capacity(sources.len());
    for (target, source) in (0..).zip(sources) {
        if source != target {
            let flags = if target > 2 { libc::O_CLOEXEC } else { 0 };
            // SAFETY: `target` is below `count`, so what is replaced is no source still to be used; its owner
            // is never dropped in this process (see above).
            check(unsafe { libc::dup3(source, target, flags) })?;
        } else if target <= 2 {
            // SAFETY: changing a descriptor's flags touches no memory.
            check(unsafe { libc::fcntl(target, libc::F_SETFD, 0) })?;
        }
        // SAFETY: `target` was opened just now, and its former owner is never dropped in this process.
        owned.push(unsafe { OwnedFd::from_raw_fd(target) });
    }
    let first = u32::try_from(count).map_err(|_| Errno::MFILE)?;
    // SAFETY: closes descriptors whose owners are never dropped in this process (see above).
    if unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) } < 0 {
        // Kernels before 5.9. The limit is at most a few thousand in a sandbox.
        // SAFETY: reads a limit of this process.
        let limit = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
        for fd in count..RawFd::try_from(limit).unwrap_or(1024) {
            // SAFETY: as for `close_range`.
            unsafe { libc::close(fd) };
        }
    }
    Ok(owned)
}

/// Starts the program at `path` in a session of its own, with an empty signal mask, the default action for
/// every signal, and the descriptors of this process that are not closed on exec.
pub(crate) fn spawn(path: &CStr, argv: &[CString], env: &[CString]) -> Result<Pid, Errno> {
    let pointers = |strings: &[CString]| -> Vec<*mut c_char> {
        strings.iter().map(|string| string.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    let mut attributes = MaybeUninit::<libc::posix_spawnattr_t>::uninit();
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut pid: libc::pid_t = 0;
    let flags =
        libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK | i32::from(libc::POSIX_SPAWN_SETSID);
    // SAFETY: the attributes and the sets are initialised before they are used, and `posix_spawn` gets arrays
    // that end in null and whose strings live until after the call; it does not change them.
    let result = unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigfillset(all.as_mut_ptr());
        libc::sigdelset(all.as_mut_ptr(), libc::SIGKILL);
        libc::sigdelset(all.as_mut_ptr(), libc::SIGSTOP);
        let attr = attributes.as_mut_ptr();
        let mut result = libc::posix_spawnattr_init(attr);
        if result == 0 {
            libc::posix_spawnattr_setflags(attr, flags as libc::c_short);
            libc::posix_spawnattr_setsigmask(attr, none.as_ptr());
            libc::posix_spawnattr_setsigdefault(attr, all.as_ptr());
            result = libc::posix_spawn(
                &raw mut pid,
                path.as_ptr(),
                ptr::null(),
                attr,
                argv.as_ptr(),
                env.as_ptr(),
            );
            libc::posix_spawnattr_destroy(attr);
        }
        result
    };
    match (result, Pid::from_raw(pid)) {
        (0, Some(pid)) => Ok(pid),
        (error, _) => Err(Errno::from_raw_os_error(error)),
    }
}

fn exit_now(status: c_int) -> ! {
    // SAFETY: ends the process; nothing of it is used afterwards.
    unsafe { libc::_exit(status) }
}

fn check(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
