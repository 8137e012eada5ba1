//! [`InitProcess`]: the first process of a container, which the host watches through a pidfd.
//!
//! When the first process of a pid namespace ends, the kernel kills all others, and reports the end when they are
//! gone. So the host knows for certain, and earlier than from the engine, that no process in the container can change
//! a file any more. The first process is the guest. The socket of the guest gives its process id, and the engine must
//! confirm it. Where the ids differ (runtimes without such a namespace, a host in its own namespace), only the engine
//! reports the end.
//!
//! State: a handle of the process. Dropping it does not end the process.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::cgroup::OomKillCounter;
use crate::docker::engine::engine_client::EngineClient;

/// The first process of a container, in a pid namespace of its own.
#[derive(Debug)]
pub(crate) struct InitProcess {
    /// Readable when all processes of the namespace have ended.
    handle: AsyncFd<OwnedFd>,
    /// The counter of processes that the kernel killed because memory ran out; `None`: unavailable.
    kills: Option<OomKillCounter>,
}

/// Whether memory ran out in a container, as far as the host knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OomStatus {
    /// It never ran out.
    NoKills,
    /// It ran out, or that is unknown. Then the engine reports how the container ended.
    Unknown,
}

impl InitProcess {
    /// Opens the process of this id, if it is the first of a pid namespace.
    fn for_pid(pid: i32) -> Option<Self> {
        let open = || -> io::Result<Option<Self>> {
            let pid =
                Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
            let handle = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
            // Read through the handle, so that the information is not that of a later process with the same id.
            let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd()))?;
            if !is_first_of_its_own(&info) {
                return Ok(None);
            }
            let kills = OomKillCounter::for_process(pid);
            Ok(Some(Self { handle: awaited(handle)?, kills }))
        };
        open().unwrap_or_else(|error| {
            tracing::debug!(%error, "the first process of a container cannot be watched");
            None
        })
    }

    /// Opens the init process of a container, whose guest connected to its socket with this process id. Called before
    /// the handshake. Only the handshake proves that the process was alive when its handle was opened.
    pub(crate) async fn for_container(engine: &EngineClient, name: &str, peer_pid: i32) -> Option<Self> {
        let first = Self::for_pid(peer_pid)?;
        let state = engine.inspect(name).await.ok()??.state?;
        (state.pid == Some(peer_pid.into())).then_some(first)
    }

    /// Waits until nothing runs in its namespace any more.
    pub(crate) async fn ended(&self) {
        while !self.has_ended() {
            match self.handle.readable().await {
                // The pidfd becomes readable only once, so a false wake-up must be cleared.
                Ok(mut ready) => ready.clear_ready(),
                // The runtime is shutting down, and all waiting tasks end with it.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Whether it is certain that nothing runs in its namespace any more.
    pub(crate) fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut asked = [PollFd::new(&self.handle, PollFlags::IN)];
        poll(&mut asked, Some(&now)).is_ok_and(|ready| ready == 1)
            && asked.iter().all(|asked| asked.revents().contains(PollFlags::IN))
    }

    /// Whether memory ran out. Call it right after the end, before the engine removes the control group.
    pub(crate) fn memory(&self) -> OomStatus {
        match self.kills.as_ref().and_then(OomKillCounter::count) {
            Some(0) => OomStatus::NoKills,
            Some(_) | None => OomStatus::Unknown,
        }
    }
}

/// Registers the handle with the runtime.
#[expect(
    deprecated,
    reason = "it is unsound for what changes its file descriptor, which an owned one does not; what takes its place is unsafe for all"
)]
fn awaited(handle: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(handle, Interest::READABLE)
}

/// Whether this `fdinfo` describes the first process of a pid namespace below the host's. It lists the process ids
/// from the host's namespace down to the innermost one; the last must be 1.
fn is_first_of_its_own(info: &str) -> bool {
    let numbers = info.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let mut numbers = numbers.unwrap_or_default().split_ascii_whitespace();
    numbers.next().is_some() && numbers.last() == Some("1")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn check(numbers: &str, expected: bool) {
        let info = format!("pos:\t0\nflags:\t02000002\nPid:\t71\nNSpid:\t{numbers}\nother:\t1\n");
        assert_eq!(is_first_of_its_own(&info), expected, "{numbers}");
    }

    #[test]
    fn only_the_first_of_a_namespace_below_takes_all_along() {
        check("71\t1", true);
        check("71\t12\t1", true);
        check("71", false);
        check("1", false);
        check("71\t2", false);
        check("1\t2", false);
        check("0", false);
        check("", false);
        assert!(!is_first_of_its_own("Pid:\t-1\n"));
    }

    proptest! {
        #[test]
        fn no_facts_are_too_strange(info in any::<String>(), number in any::<u32>()) {
            is_first_of_its_own(&info);
            let info = format!("NSpid:\t{number}\n");
            prop_assert!(!is_first_of_its_own(&info));
        }
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a process to look at")]
    async fn who_is_not_the_first_is_not_watched() {
        let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        assert!(InitProcess::for_pid(child.id().cast_signed()).is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(InitProcess::for_pid(child.id().cast_signed()).is_none());
        assert!(InitProcess::for_pid(0).is_none() && InitProcess::for_pid(-1).is_none());
    }
}
