//! The first process of a container, watched by the host itself.
//!
//! The kernel kills all that runs in a namespace of processes with its first process, and tells of that one's end when all
//! others are gone. Whoever watches the first process knows then, for certain and long before the engine says so, that nothing
//! in the container changes a file any more. It is the guest; which process that is, is told by the socket at which it was met,
//! and the engine has to say the same. Where they differ (runtimes that have no such namespace, a host in a namespace of its own)
//! only the engine knows of the end.
//!
//! State: a handle of the process. It goes with its holder; the process does not.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::engine::Engine;
use crate::cgroup::MemoryKills;

/// A container's first process, of a namespace of its own.
#[derive(Debug)]
pub(super) struct FirstProcess {
    /// Readable when the process and all others of its namespace have ended.
    handle: AsyncFd<OwnedFd>,
    /// How many the kernel killed in the container because memory ran out; `None`: nobody can tell.
    kills: Option<MemoryKills>,
}

/// Whether a container ended as somebody wanted it to, as far as the host itself can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// It did not run out, at any time.
    Sufficed,
    /// It did, or nobody knows: the engine is to say how the container ended.
    Unknown,
}

impl FirstProcess {
    /// The process of this number, when it is the first of a namespace of its own.
    fn of(pid: i32) -> Option<Self> {
        let made = || -> io::Result<Option<Self>> {
            let pid =
                Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
            let handle = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
            // Of the process that the handle is of, whatever bears its number.
            let facts = fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd()))?;
            if !is_first_of_its_own(&facts) {
                return Ok(None);
            }
            let kills = MemoryKills::of(pid);
            Ok(Some(Self { handle: awaited(handle)?, kills }))
        };
        made().unwrap_or_else(|error| {
            tracing::debug!(%error, "the first process of a container cannot be watched");
            None
        })
    }

    /// That of a container whose guest came to its socket as the process of this number and has not greeted yet. Until it has
    /// greeted, nobody knows that it lived when its handle was made.
    pub(super) async fn of_container(engine: &Engine, name: &str, came: i32) -> Option<Self> {
        let first = Self::of(came)?;
        let state = engine.inspect(name).await.ok()??.state?;
        (state.pid == Some(came.into())).then_some(first)
    }

    /// Returns when nothing runs in its namespace any more.
    pub(super) async fn ended(&self) {
        while !self.has_ended() {
            match self.handle.readable().await {
                // What comes now comes once.
                Ok(mut ready) => ready.clear_ready(),
                // The runtime goes, and all that waits with it.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Whether nothing runs in its namespace any more, for certain.
    pub(super) fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut asked = [PollFd::new(&self.handle, PollFlags::IN)];
        poll(&mut asked, Some(&now)).is_ok_and(|ready| ready == 1)
            && asked.iter().all(|asked| asked.revents().contains(PollFlags::IN))
    }

    /// What is known of the container's memory. Asked at once after its end, before the engine has cleared it away.
    pub(super) fn memory(&self) -> Memory {
        match self.kills.as_ref().and_then(MemoryKills::count) {
            Some(0) => Memory::Sufficed,
            Some(_) | None => Memory::Unknown,
        }
    }
}

/// A handle whose readiness can be waited for.
#[expect(
    deprecated,
    reason = "it is unsound for what changes its file descriptor, which an owned one does not; what takes its place is unsafe for all"
)]
fn awaited(handle: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(handle, Interest::READABLE)
}

/// Whether the facts of a process's handle are those of the first process of a namespace below that of this host: of its
/// numbers, from the host's namespace down to its own, the last is 1.
fn is_first_of_its_own(facts: &str) -> bool {
    let numbers = facts.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let mut numbers = numbers.unwrap_or_default().split_ascii_whitespace();
    numbers.next().is_some() && numbers.last() == Some("1")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn check(numbers: &str, expected: bool) {
        let facts = format!("pos:\t0\nflags:\t02000002\nPid:\t71\nNSpid:\t{numbers}\nother:\t1\n");
        assert_eq!(is_first_of_its_own(&facts), expected, "{numbers}");
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
        fn no_facts_are_too_strange(facts in any::<String>(), number in any::<u32>()) {
            is_first_of_its_own(&facts);
            let facts = format!("NSpid:\t{number}\n");
            prop_assert!(!is_first_of_its_own(&facts));
        }
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a process to look at")]
    async fn who_is_not_the_first_is_not_watched() {
        let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        assert!(FirstProcess::of(child.id().cast_signed()).is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(FirstProcess::of(child.id().cast_signed()).is_none());
        assert!(FirstProcess::of(0).is_none() && FirstProcess::of(-1).is_none());
    }
}
