//! Signals. All are blocked, and two of them are read synchronously.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;

/// Blocks all signals, and resets them to their default action. Otherwise programs would inherit the signals that
/// the host ignores.
pub(crate) fn block_signals() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is initialised before it is used. The program has one thread, which has this mask. The program
    // has no signal handlers of its own. The Rust runtime's handlers for stack overflows only improve an error
    // message, so they may be removed.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut());
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// Unblocks all signals, in a process that is about to execute a program.
pub(super) fn unblock_all() {
    let none = set_of(&[]);
    // SAFETY: the set is initialised. This process only executes a program afterwards.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut()) };
}

fn set_of(signals: &[Signal]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set before anything is added to it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
        }
        set.assume_init()
    }
}

/// Lets SIGTERM end this process at once. For a worker that leaves nothing behind.
pub(crate) fn allow_termination() {
    let set = set_of(&[Signal::TERM]);
    // SAFETY: sets the signal's default action and removes it from this thread's mask. No handler of this program
    // runs.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
    }
}

/// Blocks SIGTERM again, so that it stays pending.
pub(crate) fn block_termination() {
    let set = set_of(&[Signal::TERM]);
    // SAFETY: the set is initialised. The program has one thread, which has this mask.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
}

/// Whether SIGTERM is pending.
pub(crate) fn is_termination_pending() -> bool {
    is_any_pending([libc::SIGTERM])
}

/// Whether any other signal than these is pending.
pub(crate) fn is_other_pending(except: &[Signal]) -> bool {
    let is_excepted = |number: &i32| except.iter().any(|signal| signal.as_raw() == *number);
    is_any_pending((1..=libc::SIGRTMAX()).filter(|number| !is_excepted(number)))
}

fn is_any_pending(numbers: impl IntoIterator<Item = i32>) -> bool {
    let mut set = set_of(&[]);
    // SAFETY: the call gets an initialised set.
    let is_known = unsafe { libc::sigpending(&raw mut set) } == 0;
    // SAFETY: the set is initialised.
    is_known && numbers.into_iter().any(|number| unsafe { libc::sigismember(&raw const set, number) } == 1)
}

/// Waits for one of `signals`, which must be blocked. `None` when the time is up.
pub(crate) fn wait_for_signal(signals: &[Signal], timeout: Option<Duration>) -> Option<Signal> {
    let set = set_of(signals);
    let limit = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos().cast_signed()),
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the set is initialised. The limit is null or lives until after the call. No details are requested.
    let taken = unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), limit) };
    Signal::from_named_raw(taken)
}

/// A signalfd: signals of this process that can be polled.
#[derive(Debug)]
pub(crate) struct SignalFd(OwnedFd);

impl SignalFd {
    /// Creates a signalfd for `signals`, which must be blocked.
    pub(crate) fn new(signals: &[Signal]) -> Result<Self, Errno> {
        let set = set_of(signals);
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        // SAFETY: the descriptor was opened just now and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Returns the next pending signal, if any.
    pub(crate) fn take(&self) -> Option<(Signal, SignalSender)> {
        let mut record = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let length = rustix::io::read(&self.0, &mut record).ok()?;
        // The record begins with four integers: signal number, error, code, and pid of the sender.
        let (words, _) = record.get(..length)?.split_first_chunk::<16>()?.0.as_chunks::<4>();
        let &[number, _, code, pid] = words else { return None };
        let signal = Signal::from_named_raw(i32::from_ne_bytes(number))?;
        // The kernel does not let a process in this pid namespace send this code with a false pid.
        let is_outside = i32::from_ne_bytes(code) == libc::SI_USER && u32::from_ne_bytes(pid) == 0;
        Some((signal, if is_outside { SignalSender::Outside } else { SignalSender::Inside }))
    }
}

/// The sender of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalSender {
    /// A process outside the pid namespace of this process.
    Outside,
    /// Any other process, a timer, or the kernel.
    Inside,
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
