//! New processes: a fork of this program with chosen descriptors, and a program that such a fork starts.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, WaitOptions};

/// Ends the process when a forked child panics. A child must never return into the code of its parent.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        exit_now(101);
    }
}

/// Forks this process. The child owns `descriptors` as 0, 1, 2, … in this order, and no others. Those above 2 are
/// closed on exec. It runs `child` on them and exits with its result.
///
/// The child closes all other descriptors, so `child` must not use a descriptor that it captured.
pub(crate) fn fork(
    descriptors: &[BorrowedFd<'_>],
    child: impl FnOnce(Vec<OwnedFd>) -> u8,
) -> Result<Pid, Errno> {
    fork_whole(|| match keep_only(descriptors) {
        Ok(owned) => child(owned),
        Err(_) => 102,
    })
}

/// Forks this process. The child has all of its descriptors, runs `child` and exits with its result.
pub(crate) fn fork_whole(child: impl FnOnce() -> u8) -> Result<Pid, Errno> {
    // SAFETY: the program has one thread, so the child's memory is a consistent copy. No lock in it is held by a
    // thread that does not exist. So the child may allocate and run any code.
    let forked = unsafe { libc::fork() };
    if forked < 0 {
        return Err(last_errno());
    }
    if let Some(pid) = Pid::from_raw(forked) {
        return Ok(pid);
    }
    let guard = AbortOnUnwind;
    let status = child();
    std::mem::forget(guard);
    exit_now(i32::from(status))
}

/// Makes `descriptors` the only ones of this process.
///
/// Only for a freshly forked child: it closes descriptors that have other owners. Their owners are never dropped,
/// because the child leaves by `_exit`.
fn keep_only(descriptors: &[BorrowedFd<'_>]) -> Result<Vec<OwnedFd>, Errno> {
    let count = RawFd::try_from(descriptors.len()).map_err(|_| Errno::MFILE)?;
    let mut sources = Vec::with_capacity(descriptors.len());
    for (target, descriptor) in (0..).zip(descriptors) {
        let source = descriptor.as_raw_fd();
        // A source descriptor whose number is the target of another one is moved first.
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
            // SAFETY: `target` is below `count`, so it replaces no source that is still needed. Its owner is never
            // dropped in this process (see above).
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
        // Kernels before 5.9 lack the call. The limit is at most a few thousand in a sandbox.
        // SAFETY: reads a limit of this process.
        let limit = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
        for fd in count..RawFd::try_from(limit).unwrap_or(1024) {
            // SAFETY: as for `close_range`.
            unsafe { libc::close(fd) };
        }
    }
    Ok(owned)
}

/// Why a program could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpawnError {
    /// The process could not be created, or the program not executed.
    Program(Errno),
    /// This limit could not be set.
    Limit(Resource, Errno),
}

/// What a new process needs until its program starts. Both processes share this memory.
struct Start {
    path: *const c_char,
    argv: *const *mut c_char,
    env: *const *mut c_char,
    limits: *const (Resource, Rlimit),
    limits_length: usize,
    failed: Option<SpawnError>,
}

/// The stack of a new process until its program starts. It makes only a few system calls.
const START_STACK: usize = 32 * 1024;

/// Starts the program at `path` in a new session, with `limits` and an empty signal mask. It inherits the
/// descriptors that are not closed on exec, and the signal actions of this process.
///
/// The limits apply only to the program, because this process must outlive it.
pub(crate) fn spawn(
    path: &CStr,
    argv: &[CString],
    env: &[CString],
    limits: &[(Resource, Rlimit)],
) -> Result<Pid, SpawnError> {
    let pointers = |strings: &[CString]| -> Vec<*mut c_char> {
        strings.iter().map(|string| string.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    let mut start = Start {
        path: path.as_ptr(),
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        limits: limits.as_ptr(),
        limits_length: limits.len(),
        failed: None,
    };
    let mut stack = vec![MaybeUninit::<u128>::uninit(); START_STACK / size_of::<u128>()];
    // Like `vfork`: nothing is copied, and this process waits until the program runs.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the new process runs `begin` on its own stack, which is aligned and grows downwards from its end. This
    // process waits until the new one has its own memory or has ended. So stack, strings and limits live long enough.
    let pid = unsafe {
        let top = stack.as_mut_ptr_range().end;
        libc::clone(begin, top.cast(), flags, (&raw mut start).cast())
    };
    if pid < 0 {
        return Err(SpawnError::Program(last_errno()));
    }
    // SAFETY: `begin` wrote to this field in shared memory before this process continued. No reference to it was
    // held.
    let failed = unsafe { (&raw const start.failed).read_volatile() };
    match (failed, Pid::from_raw(pid)) {
        (None, Some(pid)) => Ok(pid),
        (Some(error), pid) => {
            // It has exited already.
            let _ = rustix::process::waitpid(pid, WaitOptions::empty());
            Err(error)
        }
        (None, None) => Err(SpawnError::Program(Errno::SRCH)),
    }
}

/// Runs in the new process, in the memory of the old one, which waits. It must not allocate, panic, or return to
/// Rust.
extern "C" fn begin(start: *mut c_void) -> c_int {
    let start: *mut Start = start.cast();
    // SAFETY: `start` is the value of `spawn`, which waits meanwhile. All calls take pointers that are valid there.
    unsafe {
        let error = prepare(&*start).err().unwrap_or_else(|| {
            libc::execve((*start).path, (*start).argv.cast(), (*start).env.cast());
            SpawnError::Program(last_errno())
        });
        (*start).failed = Some(error);
        libc::_exit(127)
    }
}

/// Prepares what the program inherits: a session, limits, no blocked signals.
fn prepare(start: &Start) -> Result<(), SpawnError> {
    rustix::process::setsid().map_err(SpawnError::Program)?;
    // SAFETY: pointer and length are those of the limits in `spawn`, which waits meanwhile.
    let limits = unsafe { std::slice::from_raw_parts(start.limits, start.limits_length) };
    for (resource, limit) in limits {
        rustix::process::setrlimit(*resource, *limit).map_err(|errno| SpawnError::Limit(*resource, errno))?;
    }
    super::signal::unblock_all();
    Ok(())
}

fn exit_now(status: c_int) -> ! {
    // SAFETY: ends the process, so nothing of it is used afterwards.
    unsafe { libc::_exit(status) }
}

fn check(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}

pub(super) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
