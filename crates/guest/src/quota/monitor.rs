//! Monitors the quota of one directory, in the guest.
//!
//! Commands may have the same user as the measuring child, so they can stop or kill it. The guest handles that:
//! - A measurement that is stopped or killed is repeated while all programs are paused.
//! - A measurement that takes too long counts as an excess.
//! - So do many failed measurements in a row.
//!
//! All programs are also paused when the file system has lost more space than the quota leaves. They resume when a
//! measurement shows who used the space.
//!
//! State: the last result, and the measurement in progress. When the guest crashes, all programs end, and no
//! monitoring is needed.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use conjure_guest::protocol::{DiskUsage, Quota, QuotaBasis, QuotaExcess};

use super::free_space::{FreeSpace, HiddenUsage};
use super::measure::{Measurement, measure};
use super::measurement::{RunningMeasurement, processor_time};
use super::schedule::MeasureSchedule;
use super::usage::{hard_limit, plus};
use super::write_budget::WriteBudget;
use crate::exec::WriteAccess;

/// How much a directory above its quota may still grow before programs are ended again. Programs that remove files
/// also create some.
const SLACK: DiskUsage = DiskUsage { bytes: 256 * 1024, inodes: 16 };

/// The maximum write speed of a disk, in bytes per millisecond. It determines how often free space is checked.
const WRITE_SPEED_MAX: u64 = 2 * 1024 * 1024;

/// The minimum and maximum interval of free space checks while a program runs.
const FREE_SPACE_INTERVAL_MIN: Duration = Duration::from_millis(5);
const FREE_SPACE_INTERVAL_MAX: Duration = Duration::from_millis(100);

/// More than any directory uses.
const UNBOUNDED: DiskUsage = DiskUsage { bytes: u64::MAX, inodes: u64::MAX };

/// After this many failures in a row, measurements count as prevented.
const FAILURES_MAX: u32 = 8;

/// A measurement that takes longer is prevented, or its disk does not respond.
const MEASUREMENT_TIMEOUT: Duration = Duration::from_secs(20);

/// Programs are paused when the quota may be exceeded by more than this share of it, or by more than
/// [`TOLERANCE_MAX`]. The tolerance exists because others use the file system, too.
const TOLERANCE_SHARE: u64 = 16;
const TOLERANCE_MAX: DiskUsage = DiskUsage { bytes: 64 << 20, inodes: 4096 };

/// Monitors the quota of one directory.
#[derive(Debug)]
pub(crate) struct QuotaMonitor {
    quota: Quota,
    dir: OwnedFd,
    schedule: MeasureSchedule,
    /// The last result. `None` before the first measurement.
    used: Option<DiskUsage>,
    /// An upper bound of what file operations wrote since that measurement began.
    written: DiskUsage,
    /// The same since the measurement in progress began.
    written_meanwhile: DiskUsage,
    /// The number of file operations in progress that change files.
    changing: u64,
    /// How many of them overlapped the measurement in progress, and have not reported what they wrote.
    unsettled: u64,
    state: QuotaState,
    /// Whether the directory may have changed since the last measurement began.
    is_stale: bool,
    /// The free space of the file system when the last completed measurement began.
    free_before: Option<FreeSpace>,
    next_check: Duration,
    measurement: Option<RunningMeasurement>,
    failures_in_a_row: u32,
    hidden_usage: HiddenUsage,
}

/// What the event loop must do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MonitorAction {
    /// Nothing.
    None,
    /// A measurement began. The caller must reap this child.
    Started(Pid),
    /// The directory was measured while everything was paused. An excess must end all programs.
    Measured(Option<QuotaExcess>),
    /// Pause all programs, and poll again.
    PauseAll,
    /// End all programs: a measurement was prevented.
    Exceeded(QuotaExcess),
}

/// The directory's state with regard to its quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuotaState {
    /// It does not exceed the quota.
    Below,
    /// It was found to exceed the quota, and programs are being ended. The next measurement decides.
    JustExceeded,
    /// It exceeds the quota. The value is the smallest usage since then.
    Exceeded(DiskUsage),
}

impl QuotaMonitor {
    /// Creates a monitor for an existing directory.
    pub(crate) fn new(quota: Quota, now: Duration) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(quota.path.as_str(), flags, Mode::empty())?;
        let mut quota = quota;
        let limit = if quota.basis == QuotaBasis::Growth { UNBOUNDED } else { hard_limit(quota.allowed) };
        // Before any program runs: no program caused what is there now.
        let (before, free) = (processor_time(), FreeSpace::read(&dir));
        let present = measure(&dir, &quota.path, rustix::process::getpid(), limit)?;
        if quota.basis == QuotaBasis::Growth {
            quota.allowed = plus(present.used, quota.allowed);
        }
        let mut monitor = Self {
            quota,
            dir,
            schedule: MeasureSchedule::new(now),
            used: None,
            written: DiskUsage::default(),
            written_meanwhile: DiskUsage::default(),
            changing: 0,
            unsettled: 0,
            state: QuotaState::Below,
            is_stale: true,
            free_before: None,
            next_check: now,
            measurement: None,
            failures_in_a_row: 0,
            hidden_usage: HiddenUsage::default(),
        };
        let excess = monitor.accept(present, free, now, processor_time().saturating_sub(before));
        debug_assert_eq!(excess, None, "nothing ran");
        Ok(monitor)
    }

    /// Whether programs that are started now may write.
    pub(crate) fn write_access(&self) -> WriteAccess {
        if self.state == QuotaState::Below { WriteAccess::Allowed } else { WriteAccess::Forbidden }
    }

    /// Returns the excess when the usage is above the hard limit, where no program may run. Then the directory is
    /// measured again, because only the host can have changed that.
    pub(crate) fn exceeds_hard_limit(&mut self) -> Option<QuotaExcess> {
        let used = self.used.filter(|used| !used.is_within(&hard_limit(self.quota.allowed)))?;
        self.is_stale = true;
        Some(QuotaExcess { used, allowed: self.quota.allowed })
    }

    /// Returns how much a file operation may write.
    pub(crate) fn write_budget(&self) -> WriteBudget<'_> {
        let (path, dir, allowed) = (&self.quota.path, self.dir.as_fd(), self.quota.allowed);
        WriteBudget { path, dir, allowed, used: self.upper_bound() }
    }

    /// The maximum usage, apart from what commands wrote since.
    fn upper_bound(&self) -> DiskUsage {
        plus(self.used.unwrap_or_default(), self.written)
    }

    /// Records the start of a file operation that changes files.
    pub(crate) fn change_started(&mut self) {
        self.changing += 1;
        self.unsettled += 1;
    }

    /// Records the end of a file operation. `more` is an upper bound of what it wrote, or `None` when it failed.
    /// The directory is measured again soon.
    pub(crate) fn change_ended(&mut self, more: Option<DiskUsage>) {
        self.is_stale = true;
        self.changing = self.changing.saturating_sub(1);
        let Some(more) = more else { return };
        self.unsettled = self.unsettled.saturating_sub(1);
        self.written = plus(self.written, more);
        self.written_meanwhile = plus(self.written_meanwhile, more);
    }

    /// The pipe of the measurement in progress.
    pub(crate) fn result_from(&self) -> Option<BorrowedFd<'_>> {
        self.measurement.as_ref().map(RunningMeasurement::result_from)
    }

    /// Whether a measurement is in progress.
    pub(crate) const fn is_measuring(&self) -> bool {
        self.measurement.is_some()
    }

    /// When to poll again if nothing else happens. `is_busy`: whether any running process could write.
    pub(crate) fn next_wakeup(&self, is_busy: bool) -> Option<Duration> {
        match &self.measurement {
            Some(measurement) if is_busy => {
                Some(self.next_check.min(measurement.since() + MEASUREMENT_TIMEOUT))
            }
            Some(measurement) => Some(measurement.since() + MEASUREMENT_TIMEOUT),
            None if is_busy => Some(self.next_check),
            None if self.is_stale => Some(self.schedule.next_regular()),
            None => None,
        }
    }

    /// Decides what is due. `is_paused`: whether everything that could write is paused. Then a measurement starts
    /// at once.
    pub(crate) fn poll(&mut self, now: Duration, is_busy: bool, is_paused: bool) -> MonitorAction {
        self.is_stale |= is_busy;
        if !is_busy {
            self.hidden_usage.no_program_runs();
        }
        if let Some(measurement) = &self.measurement {
            if now >= measurement.since() + MEASUREMENT_TIMEOUT {
                return MonitorAction::Exceeded(self.abandon_measurement());
            }
            if measurement.is_stopped() {
                if let Some(measurement) = self.measurement.take() {
                    measurement.kill();
                }
                if let Some(excess) = self.measurement_failed(now) {
                    return MonitorAction::Exceeded(excess);
                }
            }
        }
        if is_paused && self.measurement.is_none() {
            return self.start_measurement(now, is_busy, is_paused);
        }
        if self.next_wakeup(is_busy).is_none_or(|next| now < next) {
            return MonitorAction::None;
        }
        let margin = self.remaining();
        let pause = Duration::from_millis(margin.bytes / WRITE_SPEED_MAX);
        self.next_check = now + pause.clamp(FREE_SPACE_INTERVAL_MIN, FREE_SPACE_INTERVAL_MAX);
        let lost = self.lost_space();
        if is_busy && !is_paused && self.is_urgent(lost, margin) {
            return MonitorAction::PauseAll;
        }
        if self.measurement.is_some() {
            return MonitorAction::None;
        }
        let is_due = match lost {
            // The lost space need not be in this directory.
            Some(lost) => {
                let has_reason =
                    !is_busy || lost != DiskUsage::default() || now >= self.schedule.next_when_quiet();
                !lost.is_within(&margin) && now >= self.schedule.earliest_early()
                    || now >= self.schedule.next_regular() && has_reason
            }
            None => now >= self.schedule.next_regular(),
        };
        if is_due { self.start_measurement(now, is_busy, is_paused) } else { MonitorAction::None }
    }

    /// Whether all programs must be paused until the measurement ends.
    fn is_urgent(&self, lost: Option<DiskUsage>, margin: DiskUsage) -> bool {
        let allowed = self.quota.allowed;
        let tolerance = DiskUsage {
            bytes: (allowed.bytes / TOLERANCE_SHARE).min(TOLERANCE_MAX.bytes),
            inodes: (allowed.inodes / TOLERANCE_SHARE).min(TOLERANCE_MAX.inodes),
        };
        self.failures_in_a_row > 0 || lost.is_some_and(|lost| !lost.is_within(&plus(margin, tolerance)))
    }

    /// Records that a process did not stay paused during a measurement, or could not be paused.
    pub(crate) fn measurement_disturbed(&mut self, now: Duration) -> Option<QuotaExcess> {
        self.measurement_failed(now)
    }

    /// Kills a measurement that takes too long. It counts as an excess.
    fn abandon_measurement(&mut self) -> QuotaExcess {
        if let Some(measurement) = self.measurement.take() {
            measurement.kill();
        }
        self.is_stale = true;
        QuotaExcess { used: self.used.unwrap_or_default(), allowed: self.quota.allowed }
    }

    /// Records a failed measurement. Returns an excess when too many failed in a row.
    fn measurement_failed(&mut self, now: Duration) -> Option<QuotaExcess> {
        self.schedule.spend(now, Duration::from_millis(1));
        self.is_stale = true;
        self.next_check = now;
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        let used = self.used.unwrap_or_default();
        (self.failures_in_a_row >= FAILURES_MAX).then(|| {
            self.failures_in_a_row = 0;
            QuotaExcess { used, allowed: self.quota.allowed }
        })
    }

    /// Returns the space that the file system lost since the last measurement began. `None` where it does not
    /// report that.
    fn lost_space(&self) -> Option<DiskUsage> {
        let (before, free) = (self.free_before?, FreeSpace::read(&self.dir)?);
        Some(DiskUsage {
            bytes: before.bytes.saturating_sub(free.bytes),
            inodes: before.inodes?.saturating_sub(free.inodes?),
        })
    }

    /// Returns how much the directory may still grow before programs are ended.
    fn remaining(&self) -> DiskUsage {
        let used = self.upper_bound();
        let max = match self.state {
            QuotaState::Below => self.quota.allowed,
            QuotaState::JustExceeded => used,
            QuotaState::Exceeded(min) => plus(min, SLACK),
        };
        DiskUsage {
            bytes: max.bytes.saturating_sub(used.bytes),
            inodes: max.inodes.saturating_sub(used.inodes),
        }
    }

    fn start_measurement(&mut self, now: Duration, is_busy: bool, is_paused: bool) -> MonitorAction {
        // Read before the start: what is written during the measurement counts as lost since then.
        let free = FreeSpace::read(&self.dir);
        let enough = hard_limit(self.quota.allowed);
        let started = RunningMeasurement::start(&self.dir, &self.quota.path, enough, now, free);
        let Some(measurement) = started else {
            // Commands may use up all processes. The guest measures by itself, and does nothing else meanwhile.
            if is_busy && !is_paused {
                return MonitorAction::PauseAll;
            }
            let before = processor_time();
            let found = measure(&self.dir, &self.quota.path, rustix::process::getpid(), enough);
            self.reset_changes(is_busy);
            let excess = match found {
                Ok(found) => self.accept(found, free, now, processor_time().saturating_sub(before)),
                Err(_) => self.measurement_failed(now),
            };
            return MonitorAction::Measured(excess);
        };
        self.reset_changes(is_busy);
        let pid = measurement.pid();
        self.measurement = Some(measurement);
        MonitorAction::Started(pid)
    }

    /// Starts to count the file operations that the new measurement does not include.
    fn reset_changes(&mut self, is_busy: bool) {
        self.is_stale = is_busy;
        self.written_meanwhile = DiskUsage::default();
        self.unsettled = self.changing;
    }

    /// Reads from the measurement in progress. Returns an excess when all programs must be ended.
    pub(crate) fn read_result(&mut self, now: Duration) -> Option<QuotaExcess> {
        if !self.measurement.as_mut()?.read() {
            return None;
        }
        let measurement = self.measurement.take()?;
        self.next_check = now;
        match measurement.result() {
            Some((found, cost)) => self.accept(found, measurement.free_before(), now, cost),
            None => self.measurement_failed(now),
        }
    }

    /// Accepts a result. `free` is the free space when the measurement began.
    fn accept(
        &mut self,
        found: Measurement,
        free: Option<FreeSpace>,
        now: Duration,
        cost: Duration,
    ) -> Option<QuotaExcess> {
        self.failures_in_a_row = 0;
        self.free_before = free;
        self.schedule.spend(now, cost);
        self.written = self.written_meanwhile;
        let free_now = FreeSpace::read(&self.dir);
        let used = plus(found.used, self.hidden_usage.update(found, free, free_now));
        self.evaluate(used, self.uncertainty())
    }

    /// Returns how much of the result may never have existed at the same time. A measurement counts a file where
    /// it finds it. It may count files of one operation here, and those of the next operation there.
    fn uncertainty(&self) -> DiskUsage {
        let DiskUsage { bytes, inodes } = self.quota.allowed;
        let unsettled = DiskUsage {
            bytes: bytes.saturating_mul(self.unsettled),
            inodes: inodes.saturating_mul(self.unsettled),
        };
        plus(self.written_meanwhile, unsettled)
    }

    /// Accepts a usage, of which up to `uncertainty` is not certain.
    fn evaluate(&mut self, used: DiskUsage, uncertainty: DiskUsage) -> Option<QuotaExcess> {
        let is_first = self.used.is_none();
        let allowed = self.quota.allowed;
        if self.state == QuotaState::Below
            && !used.is_within(&allowed)
            && used.is_within(&plus(allowed, uncertainty))
        {
            // The excess may not be real, so no program is ended. The directory counts as full, and is measured again.
            let max =
                DiskUsage { bytes: used.bytes.min(allowed.bytes), inodes: used.inodes.min(allowed.inodes) };
            self.used = Some(max);
            self.is_stale = true;
            return None;
        }
        self.used = Some(used);
        let excess = QuotaExcess { used, allowed: self.quota.allowed };
        let (state, is_too_much) = match self.state {
            _ if used.is_within(&self.quota.allowed) => (QuotaState::Below, false),
            // No program caused the usage that was there before any program ran.
            QuotaState::Below if is_first => (QuotaState::Exceeded(used), false),
            QuotaState::Below => (QuotaState::JustExceeded, true),
            QuotaState::JustExceeded => (QuotaState::Exceeded(used), false),
            QuotaState::Exceeded(min) if used.is_within(&plus(plus(min, SLACK), uncertainty)) => {
                let bytes = min.bytes.min(used.bytes);
                (QuotaState::Exceeded(DiskUsage { bytes, inodes: min.inodes.min(used.inodes) }), false)
            }
            QuotaState::Exceeded(_) => (QuotaState::JustExceeded, true),
        };
        self.state = state;
        is_too_much.then_some(excess)
    }
}

#[cfg(test)]
mod tests;
