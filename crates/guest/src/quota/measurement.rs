//! One measurement in a child process. The child may block, and may be stopped or killed.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use rustix::time::{ClockId, clock_gettime};

use conjure_guest::protocol::DiskUsage;

use super::free_space::FreeSpace;
use super::measure::{Completeness, Measurement, measure};
use crate::job::{ReadOutcome, kill, pipe_from_child, read};
use crate::sys;

/// The length of a result: bytes, inodes, completeness, nanoseconds of processor time.
const RESULT_LEN: usize = 32;

/// A measurement in progress.
#[derive(Debug)]
pub(super) struct RunningMeasurement {
    pid: Pid,
    result_from: OwnedFd,
    result: Vec<u8>,
    /// When it began.
    since: Duration,
    /// The free space of the file system before it began.
    free_before: Option<FreeSpace>,
}

impl RunningMeasurement {
    /// Starts a child that measures `dir`. `None` when no process or pipe can be created.
    pub(super) fn start(
        dir: &OwnedFd,
        path: &str,
        enough: DiskUsage,
        now: Duration,
        free_before: Option<FreeSpace>,
    ) -> Option<Self> {
        let guest = rustix::process::getpid();
        let (result_from, result_to) = pipe_from_child().ok()?;
        let descriptors = [dir.as_fd(), result_to.as_fd()];
        let pid = sys::fork(&descriptors, |owned| run_child(owned, path, guest, enough)).ok()?;
        Some(Self { pid, result_from, result: Vec::new(), since: now, free_before })
    }

    /// The child. The caller must reap it.
    pub(super) const fn pid(&self) -> Pid {
        self.pid
    }

    /// When it began.
    pub(super) const fn since(&self) -> Duration {
        self.since
    }

    /// The free space of the file system before it began.
    pub(super) const fn free_before(&self) -> Option<FreeSpace> {
        self.free_before
    }

    /// The pipe that the child writes its result to.
    pub(super) fn result_from(&self) -> BorrowedFd<'_> {
        self.result_from.as_fd()
    }

    /// Reads what the child wrote. Returns whether the child has closed the pipe.
    pub(super) fn read(&mut self) -> bool {
        let mut piece = [0; RESULT_LEN];
        loop {
            match read(&self.result_from, &mut piece) {
                ReadOutcome::Bytes(length) => {
                    self.result.extend_from_slice(piece.get(..length).unwrap_or_default());
                }
                ReadOutcome::Nothing => return false,
                ReadOutcome::End => return true,
            }
        }
    }

    /// The result and the processor time that it took, once the pipe is closed. `None` when the child failed.
    pub(super) fn result(&self) -> Option<(Measurement, Duration)> {
        decode_result(&self.result)
    }

    /// Whether something stopped the child (SIGSTOP).
    pub(super) fn is_stopped(&self) -> bool {
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid), stopped).is_ok_and(|status| status.is_some())
    }

    /// Kills the child.
    pub(super) fn kill(self) {
        kill(self.pid);
    }
}

/// Runs in the child. Its descriptors are the directory, and the pipe for the result.
fn run_child(descriptors: Vec<OwnedFd>, path: &str, guest: Pid, enough: DiskUsage) -> u8 {
    sys::allow_termination();
    if rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).is_err()
        || rustix::process::getppid() != Some(guest)
    {
        return 1;
    }
    let mut descriptors = descriptors.into_iter();
    let (Some(dir), Some(result_to)) = (descriptors.next(), descriptors.next()) else { return 1 };
    let Ok(found) = measure(&dir, path, guest, enough) else { return 1 };
    let cost = u64::try_from(processor_time().as_nanos()).unwrap_or(u64::MAX);
    let result =
        [found.used.bytes, found.used.inodes, found.completeness as u64, cost].map(u64::to_le_bytes).concat();
    u8::from(File::from(result_to).write_all(&result).is_err())
}

/// The processor time that this process has used.
pub(super) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

fn decode_result(result: &[u8]) -> Option<(Measurement, Duration)> {
    let (numbers, rest) = result.as_chunks::<8>();
    match (numbers, rest) {
        ([bytes, inodes, completeness, cost], []) => {
            let used = DiskUsage { bytes: u64::from_le_bytes(*bytes), inodes: u64::from_le_bytes(*inodes) };
            let completeness = match u64::from_le_bytes(*completeness) {
                0 => Completeness::Complete,
                1 => Completeness::ProgramStarting,
                _ => Completeness::Incomplete,
            };
            Some((Measurement { used, completeness }, Duration::from_nanos(u64::from_le_bytes(*cost))))
        }
        _ => None,
    }
}
