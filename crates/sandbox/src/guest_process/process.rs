//! The guest as a child process, and its private directory.
//!
//! Dropping it kills the guest and removes the directory. Commands end with the guest: their supervising processes end
//! them when the guest dies.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use conjure_guest::protocol::Welcome;
use futures_util::future::BoxFuture;
#[cfg(feature = "jail")]
use rustix::process::{Pid, Signal};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStderr};

use super::marked_temp_dir::MarkedTempDir;
use crate::connector::SandboxGuard;
use crate::settings::isolation::Isolation;

/// The maximum length of the guest's standard error in an error, in bytes. The end of it is kept.
const STDERR_TAIL_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct GuestProcess {
    child: Child,
    /// Its standard error; `None` once it ended.
    stderr: Option<ChildStderr>,
    /// The end of its standard error, which explains why the guest ended.
    stderr_tail: Vec<u8>,
    /// The directory of spilled output. It is removed with the sandbox, after the guest was killed. `None`: the owner
    /// of the sandbox directory removes it.
    _dir: Option<MarkedTempDir>,
}

impl GuestProcess {
    pub(crate) fn new(mut child: Child, dir: Option<MarkedTempDir>) -> Self {
        let stderr = child.stderr.take();
        Self { child, stderr, stderr_tail: Vec::new(), _dir: dir }
    }

    /// Sends SIGTERM to the started process. Returns whether it still runs.
    #[cfg(feature = "jail")]
    pub(crate) fn send_sigterm(&self) -> bool {
        // The process id is not reused until tokio has waited for the process. From then on, tokio returns no id.
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        pid.is_some_and(|pid| {
            // The process may be stopped, so SIGCONT follows.
            let asked = rustix::process::kill_process(pid, Signal::TERM);
            asked.and_then(|()| rustix::process::kill_process(pid, Signal::CONT)).is_ok()
        })
    }

    /// Waits for the end of the started process, at most this long, without a Tokio runtime.
    #[cfg(feature = "jail")]
    pub(crate) fn wait_blocking(&self, timeout: std::time::Duration) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};

        let Some(pid) = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) else { return };
        let Ok(process) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else {
            return;
        };
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // If a signal interrupts the wait, it is only shorter.
        let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout));
    }

    /// Reads standard error until all its holders have closed it. The holders are the guest and its file workers. In
    /// a jail, the guest is not the started process. Commands never have it.
    async fn read_stderr(stderr: &mut Option<ChildStderr>, stderr_tail: &mut Vec<u8>) {
        while let Some(pipe) = stderr {
            let mut piece = [0; STDERR_TAIL_MAX];
            match pipe.read(&mut piece).await {
                Ok(length @ 1..) => {
                    stderr_tail.extend_from_slice(&piece[..length]);
                    stderr_tail.drain(..stderr_tail.len().saturating_sub(STDERR_TAIL_MAX));
                }
                Ok(0) => *stderr = None,
                Err(error) => {
                    tracing::debug!(%error, "the guest's standard error cannot be read");
                    *stderr = None;
                }
            }
        }
    }
}

impl SandboxGuard for GuestProcess {
    fn confirmed_isolation(&mut self, _: &Welcome) -> Isolation {
        Isolation::NONE
    }

    fn wait(&mut self) -> BoxFuture<'_, String> {
        Box::pin(async {
            // Both at the same time: a guest that writes to a full standard error could not exit.
            let (status, ()) =
                tokio::join!(self.child.wait(), Self::read_stderr(&mut self.stderr, &mut self.stderr_tail));
            let how = match status {
                Ok(status) => describe(status),
                Err(error) => format!("its end cannot be seen: {error}"),
            };
            match String::from_utf8_lossy(&self.stderr_tail).trim() {
                "" => how,
                complaint => format!("{how}: {complaint}"),
            }
        })
    }

    fn kill(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Err(error) = self.child.start_kill() {
                tracing::warn!(%error, "failed to kill the guest");
            }
            self.wait().await;
        })
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}
