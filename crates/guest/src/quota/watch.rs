//! The watch over a folder's quota: the guest's side.
//!
//! Commands may be the user that measures, so they can stop or end who does. So the guest, which they cannot signal, watches over
//! that: a measurement that is stopped or ended by force is made again while everything stands still, one that takes too long
//! counts as an excess, and so does one that is prevented again and again.
//!
//! Everything stands still, too, from when the file system has lost more than the quota leaves, until it is measured whose
//! doing that was: however many files there are, and however long it takes to count them.
//!
//! Space that a process hides ([`super::measure`]) is told by the file system: what others have of it does not change, so
//! what it has lost and no name accounts for is hidden. Others may take space at the same time, so that is believed only where something
//! may be hidden, and was several times in a row.
//!
//! State: what was measured last, and a measurement under way. A crash of the guest ends what runs, and with it the need.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use rustix::time::{ClockId, clock_gettime};

use conjure_guest::protocol::{Counted, DiskUsage, Quota, QuotaExcess};

use super::measure::{Measurement, measure};
use super::room::Room;
use super::schedule::Schedule;
use super::{beyond, less, plus};
use crate::exec::Writing;
use crate::job::{Got, kill, pipe_from_child, read};
use crate::sys;

/// What a folder that takes too much may take more, of either, before what runs is ended again: programs that remove
/// files make some, too.
const SLACK: DiskUsage = DiskUsage { bytes: 256 * 1024, inodes: 16 };

/// How fast a disk is filled at most, in bytes for each millisecond: so often the free space is looked at.
const FASTEST: u64 = 2 * 1024 * 1024;

/// The free space is looked at no more often, and no less while something runs.
const LOOK_SOONEST: Duration = Duration::from_millis(5);
const LOOK_LATEST: Duration = Duration::from_millis(100);

/// More than any folder takes.
const UNBOUNDED: DiskUsage = DiskUsage { bytes: u64::MAX, inodes: u64::MAX };

/// When so many measurements in a row failed, they are being prevented.
const FAILURES_MAX: u32 = 8;

/// A measurement that takes longer is prevented, or its disk does not answer.
const MEASURED_WITHIN: Duration = Duration::from_secs(20);

/// By one part in so many of the quota it may be exceeded before everything stands still, and by no more than
/// [`TOLERANCE_MAX`]: others use the file system, too.
const TOLERANCE_SHARE: u64 = 16;
const TOLERANCE_MAX: DiskUsage = DiskUsage { bytes: 64 << 20, inodes: 4096 };

/// What may be hidden is believed to be when it may have been so often in a row: a program that is just being started lets
/// nobody look, either.
const HIDDEN_AFTER: u32 = 3;

/// A measurement's result, as the child writes it: bytes, inodes, whether that is all, nanoseconds of processor time.
const RESULT: usize = 32;

/// Watches over the quota of one folder.
#[derive(Debug)]
pub(crate) struct Watch {
    quota: Quota,
    folder: OwnedFd,
    schedule: Schedule,
    /// What was measured; `None` before the first measurement.
    used: Option<DiskUsage>,
    /// What file operations have written at most since that measurement began.
    written: DiskUsage,
    /// And since the one under way did.
    written_meanwhile: DiskUsage,
    /// How many file operations that change something are under way.
    changing: u64,
    /// How many of them there were beside the measurement under way, but for those that have told what they wrote.
    unsettled: u64,
    state: State,
    /// Whether something may have changed since the last measurement began.
    is_stale: bool,
    /// The free space of the file system when the last measurement that came to an end began.
    free: Option<Free>,
    next_look: Duration,
    child: Option<Measuring>,
    failures: u32,
    /// How many measurements in a row were not complete.
    incomplete: u32,
    /// What others have of the file system: the least since a measurement was complete.
    others: Option<DiskUsage>,
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing.
    Nothing,
    /// A measurement began. Its child, which the caller has to reap.
    Measures(Pid),
    /// It was measured, while all stands still. What runs must be ended when the quota is exceeded.
    Measured(Option<QuotaExcess>),
    /// What runs must stand still, and then it is looked again.
    StandStill,
    /// What runs must be ended: a measurement was prevented.
    Exceeded(QuotaExcess),
}

/// How the folder stands to its quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It takes no more.
    Within,
    /// It was found to take more, and what ran is being ended: what is there then is for the next measurement.
    Crossed,
    /// It takes more. The least that it took since it was measured after that.
    Over(DiskUsage),
}

/// A measurement under way.
#[derive(Debug)]
struct Measuring {
    pid: Pid,
    result_from: OwnedFd,
    result: Vec<u8>,
    /// When it began.
    since: Duration,
    /// The free space of the file system then.
    free: Option<Free>,
}

/// Space of a file system.
#[derive(Debug, Clone, Copy)]
struct Free {
    bytes: u64,
    /// `None` where the file system makes inodes as it needs them.
    inodes: Option<u64>,
    /// What is not free, of either.
    taken: DiskUsage,
}

impl Free {
    /// What is taken beside so much.
    const fn beside(&self, used: DiskUsage) -> DiskUsage {
        less(self.taken, used)
    }
}

impl Watch {
    /// A watch over an existing folder.
    pub(crate) fn new(quota: Quota, now: Duration) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(quota.path.as_str(), flags, Mode::empty())?;
        let mut quota = quota;
        let enough = if quota.counted == Counted::Growth { UNBOUNDED } else { beyond(quota.allowed) };
        // Before anything runs: what is there now is nobody's fault, and what is more later is.
        let (before, free) = (processor_time(), free(&folder));
        let present = measure(&folder, &quota.path, rustix::process::getpid(), enough)?;
        if quota.counted == Counted::Growth {
            quota.allowed = plus(present.used, quota.allowed);
        }
        let mut watch = Self {
            quota,
            folder,
            schedule: Schedule::new(now),
            used: None,
            written: DiskUsage::default(),
            written_meanwhile: DiskUsage::default(),
            changing: 0,
            unsettled: 0,
            state: State::Within,
            is_stale: true,
            free: None,
            next_look: now,
            child: None,
            failures: 0,
            incomplete: 0,
            others: None,
        };
        let excess = watch.accept(present, free, now, processor_time().saturating_sub(before));
        debug_assert_eq!(excess, None, "nothing ran");
        Ok(watch)
    }

    /// Whether programs that are started now may write.
    pub(crate) fn writing(&self) -> Writing {
        if self.state == State::Within { Writing::Allowed } else { Writing::Forbidden }
    }

    /// Whether it takes so much that nothing may be run in it, and how much. Then it is measured again: only the host can
    /// have changed that since.
    pub(crate) fn is_beyond(&mut self) -> Option<QuotaExcess> {
        let used = self.used.filter(|used| !used.is_within(&beyond(self.quota.allowed)))?;
        self.is_stale = true;
        Some(QuotaExcess { used, allowed: self.quota.allowed })
    }

    /// How much a file operation may write.
    pub(crate) fn room(&self) -> Room<'_> {
        let (path, folder, allowed) = (&self.quota.path, self.folder.as_fd(), self.quota.allowed);
        Room { path, folder, allowed, used: self.presumed() }
    }

    /// What it takes at most, but for what commands wrote.
    fn presumed(&self) -> DiskUsage {
        plus(self.used.unwrap_or_default(), self.written)
    }

    /// A file operation begins that changes something.
    pub(crate) fn change_begins(&mut self) {
        self.changing += 1;
        self.unsettled += 1;
    }

    /// It is over, and wrote so much at most; `None` when it failed. It is also measured, soon.
    pub(crate) fn change_is_over(&mut self, more: Option<DiskUsage>) {
        self.is_stale = true;
        self.changing = self.changing.saturating_sub(1);
        let Some(more) = more else { return };
        self.unsettled = self.unsettled.saturating_sub(1);
        self.written = plus(self.written, more);
        self.written_meanwhile = plus(self.written_meanwhile, more);
    }

    /// Where the measurement under way tells its result.
    pub(crate) fn result_from(&self) -> Option<BorrowedFd<'_>> {
        self.child.as_ref().map(|child| child.result_from.as_fd())
    }

    /// Whether a measurement is under way.
    pub(crate) const fn is_measuring(&self) -> bool {
        self.child.is_some()
    }

    /// When to look again, if nothing happens before. `is_busy`: whether anything runs that could write.
    pub(crate) fn next_look(&self, is_busy: bool) -> Option<Duration> {
        match &self.child {
            Some(child) if is_busy => Some(self.next_look.min(child.since + MEASURED_WITHIN)),
            Some(child) => Some(child.since + MEASURED_WITHIN),
            None if is_busy => Some(self.next_look),
            None if self.is_stale => Some(self.schedule.regular()),
            None => None,
        }
    }

    /// Sees what is due. `stands_still`: whether all that could write stands still, so that it is measured at once.
    pub(crate) fn look(&mut self, now: Duration, is_busy: bool, stands_still: bool) -> Look {
        self.is_stale |= is_busy;
        if let Some(child) = &self.child {
            if now >= child.since + MEASURED_WITHIN {
                return Look::Exceeded(self.give_up());
            }
            if is_stopped(child.pid) {
                kill(child.pid);
                self.child = None;
                if let Some(excess) = self.failed(now) {
                    return Look::Exceeded(excess);
                }
            }
        }
        if stands_still && self.child.is_none() {
            return self.begin(now, is_busy, stands_still);
        }
        if self.next_look(is_busy).is_none_or(|next| now < next) {
            return Look::Nothing;
        }
        let margin = self.margin();
        let pause = Duration::from_millis(margin.bytes / FASTEST);
        self.next_look = now + pause.clamp(LOOK_SOONEST, LOOK_LATEST);
        let lost = self.lost();
        if is_busy && !stands_still && self.is_urgent(lost, margin) {
            return Look::StandStill;
        }
        if self.child.is_some() {
            return Look::Nothing;
        }
        let is_due = match lost {
            // Where something is lost, it need not be to this folder.
            Some(lost) => {
                let has_reason = !is_busy || lost != DiskUsage::default() || now >= self.schedule.seldom();
                !lost.is_within(&margin) && now >= self.schedule.early()
                    || now >= self.schedule.regular() && has_reason
            }
            None => now >= self.schedule.regular(),
        };
        if is_due { self.begin(now, is_busy, stands_still) } else { Look::Nothing }
    }

    /// Whether nothing may be written until it is measured.
    fn is_urgent(&self, lost: Option<DiskUsage>, margin: DiskUsage) -> bool {
        let allowed = self.quota.allowed;
        let tolerance = DiskUsage {
            bytes: (allowed.bytes / TOLERANCE_SHARE).min(TOLERANCE_MAX.bytes),
            inodes: (allowed.inodes / TOLERANCE_SHARE).min(TOLERANCE_MAX.inodes),
        };
        self.failures > 0 || lost.is_some_and(|lost| !lost.is_within(&plus(margin, tolerance)))
    }

    /// Those that were to stand still did not while it was measured, or cannot be made to.
    pub(crate) fn was_disturbed(&mut self, now: Duration) -> Option<QuotaExcess> {
        self.failed(now)
    }

    /// A measurement that takes too long counts as an excess.
    fn give_up(&mut self) -> QuotaExcess {
        if let Some(child) = self.child.take() {
            kill(child.pid);
        }
        self.is_stale = true;
        QuotaExcess { used: self.used.unwrap_or_default(), allowed: self.quota.allowed }
    }

    /// A measurement failed, or somebody ended it. What ran must be ended when that is prevented.
    fn failed(&mut self, now: Duration) -> Option<QuotaExcess> {
        self.schedule.spend(now, Duration::from_millis(1));
        self.is_stale = true;
        self.next_look = now;
        self.failures = self.failures.saturating_add(1);
        let used = self.used.unwrap_or_default();
        (self.failures >= FAILURES_MAX).then(|| {
            self.failures = 0;
            QuotaExcess { used, allowed: self.quota.allowed }
        })
    }

    /// What the file system has less of than when the last measurement began; `None` where it does not tell.
    fn lost(&self) -> Option<DiskUsage> {
        let (before, free) = (self.free?, self.free()?);
        Some(DiskUsage {
            bytes: before.bytes.saturating_sub(free.bytes),
            inodes: before.inodes?.saturating_sub(free.inodes?),
        })
    }

    /// How much more it may take before what runs is ended.
    fn margin(&self) -> DiskUsage {
        let used = self.presumed();
        let most = match self.state {
            State::Within => self.quota.allowed,
            State::Crossed => used,
            State::Over(least) => plus(least, SLACK),
        };
        DiskUsage {
            bytes: most.bytes.saturating_sub(used.bytes),
            inodes: most.inodes.saturating_sub(used.inodes),
        }
    }

    fn free(&self) -> Option<Free> {
        free(&self.folder)
    }

    fn begin(&mut self, now: Duration, is_busy: bool, stands_still: bool) -> Look {
        // Taken before: what is written while the measurement goes on counts as lost since.
        let free = self.free();
        let enough = beyond(self.quota.allowed);
        let guest = rustix::process::getpid();
        let started = pipe_from_child().ok().and_then(|(result_from, result_to)| {
            let descriptors = [self.folder.as_fd(), result_to.as_fd()];
            let pid = sys::fork(&descriptors, |owned| run(owned, &self.quota.path, guest, enough)).ok()?;
            Some(Measuring { pid, result_from, result: Vec::new(), since: now, free })
        });
        let Some(child) = started else {
            // Commands may have all processes that are to be had. The guest does nothing else meanwhile.
            if is_busy && !stands_still {
                return Look::StandStill;
            }
            let before = processor_time();
            let found = measure(&self.folder, &self.quota.path, guest, enough);
            self.start_anew(is_busy);
            let excess = match found {
                Ok(found) => self.accept(found, free, now, processor_time().saturating_sub(before)),
                Err(_) => self.failed(now),
            };
            return Look::Measured(excess);
        };
        self.start_anew(is_busy);
        let pid = child.pid;
        self.child = Some(child);
        Look::Measures(pid)
    }

    /// What file operations do from now on is not in the measurement that begins.
    fn start_anew(&mut self, is_busy: bool) {
        self.is_stale = is_busy;
        self.written_meanwhile = DiskUsage::default();
        self.unsettled = self.changing;
    }

    /// The measurement under way has something to tell, or has ended. What ran must be ended when the quota is exceeded.
    pub(crate) fn ready(&mut self, now: Duration) -> Option<QuotaExcess> {
        let child = self.child.as_mut()?;
        let mut piece = [0; RESULT];
        loop {
            match read(&child.result_from, &mut piece) {
                Got::Bytes(length) => child.result.extend_from_slice(piece.get(..length).unwrap_or_default()),
                Got::Nothing => return None,
                Got::End => break,
            }
        }
        let (result, free) = (std::mem::take(&mut child.result), child.free);
        self.child = None;
        self.next_look = now;
        match decode(&result) {
            Some((found, cost)) => self.accept(found, free, now, cost),
            None => self.failed(now),
        }
    }

    /// Takes what was measured. `free`: when that began.
    fn accept(
        &mut self,
        found: Measurement,
        free: Option<Free>,
        now: Duration,
        cost: Duration,
    ) -> Option<QuotaExcess> {
        self.failures = 0;
        self.free = free;
        self.schedule.spend(now, cost);
        self.written = self.written_meanwhile;
        let used = plus(found.used, self.hidden(found, free));
        self.judge(used, self.doubt())
    }

    /// What is hidden, as far as it is believed. `free`: when the measurement began.
    fn hidden(&mut self, found: Measurement, free: Option<Free>) -> DiskUsage {
        if found.is_complete {
            self.incomplete = 0;
            // What was written meanwhile was counted, or not: the end of the measurement is in favour of who wrote it.
            self.others = self.free().map(|free| free.beside(found.used));
            return DiskUsage::default();
        }
        self.incomplete = self.incomplete.saturating_add(1);
        let Some(free) = free else { return DiskUsage::default() };
        let beside = free.beside(found.used);
        // The first measurement begins before anything runs, and may find that something does when it is made.
        let others = self.others.unwrap_or(beside);
        self.others = Some(DiskUsage {
            bytes: others.bytes.min(beside.bytes),
            inodes: others.inodes.min(beside.inodes),
        });
        if self.incomplete < HIDDEN_AFTER { DiskUsage::default() } else { less(beside, others) }
    }

    /// How much of what was measured may have been there at no one time. What file operations make and take back, or
    /// rename, is counted wherever the measurement comes upon it: of one operation here, of the next one there.
    fn doubt(&self) -> DiskUsage {
        let DiskUsage { bytes, inodes } = self.quota.allowed;
        let unsettled = DiskUsage {
            bytes: bytes.saturating_mul(self.unsettled),
            inodes: inodes.saturating_mul(self.unsettled),
        };
        plus(self.written_meanwhile, unsettled)
    }

    /// Takes what was measured, of which as much as `doubt` is not certain.
    fn judge(&mut self, used: DiskUsage, doubt: DiskUsage) -> Option<QuotaExcess> {
        let is_first = self.used.is_none();
        let allowed = self.quota.allowed;
        if self.state == State::Within && !used.is_within(&allowed) && used.is_within(&plus(allowed, doubt)) {
            // Nobody is ended for what nobody may have done. It is full, and is measured again.
            let most =
                DiskUsage { bytes: used.bytes.min(allowed.bytes), inodes: used.inodes.min(allowed.inodes) };
            self.used = Some(most);
            self.is_stale = true;
            return None;
        }
        self.used = Some(used);
        let excess = QuotaExcess { used, allowed: self.quota.allowed };
        let (state, is_too_much) = match self.state {
            _ if used.is_within(&self.quota.allowed) => (State::Within, false),
            // What was there before anything ran is nobody's fault.
            State::Within if is_first => (State::Over(used), false),
            State::Within => (State::Crossed, true),
            State::Crossed => (State::Over(used), false),
            State::Over(least) if used.is_within(&plus(plus(least, SLACK), doubt)) => {
                let bytes = least.bytes.min(used.bytes);
                (State::Over(DiskUsage { bytes, inodes: least.inodes.min(used.inodes) }), false)
            }
            State::Over(_) => (State::Crossed, true),
        };
        self.state = state;
        is_too_much.then_some(excess)
    }
}

/// What the file system of a folder has; `None` where it does not tell.
fn free(folder: &OwnedFd) -> Option<Free> {
    let stat = rustix::fs::fstatvfs(folder).ok()?;
    let inodes = (stat.f_files > 0).then_some(stat.f_ffree);
    let taken = DiskUsage {
        bytes: stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize),
        inodes: stat.f_files.saturating_sub(stat.f_ffree),
    };
    Some(Free { bytes: stat.f_bfree.saturating_mul(stat.f_frsize), inodes, taken })
}

/// The life of the child. Its descriptors are the folder, and the pipe to tell the result on.
fn run(descriptors: Vec<OwnedFd>, path: &str, guest: Pid, enough: DiskUsage) -> u8 {
    sys::allow_termination();
    if rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).is_err()
        || rustix::process::getppid() != Some(guest)
    {
        return 1;
    }
    let mut descriptors = descriptors.into_iter();
    let (Some(folder), Some(result_to)) = (descriptors.next(), descriptors.next()) else { return 1 };
    let Ok(found) = measure(&folder, path, guest, enough) else { return 1 };
    let cost = u64::try_from(processor_time().as_nanos()).unwrap_or(u64::MAX);
    let result = [found.used.bytes, found.used.inodes, u64::from(found.is_complete), cost]
        .map(u64::to_le_bytes)
        .concat();
    u8::from(File::from(result_to).write_all(&result).is_err())
}

/// What this process took of a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

fn decode(result: &[u8]) -> Option<(Measurement, Duration)> {
    let (numbers, rest) = result.as_chunks::<8>();
    match (numbers, rest) {
        ([bytes, inodes, is_complete, cost], []) => {
            let used = DiskUsage { bytes: u64::from_le_bytes(*bytes), inodes: u64::from_le_bytes(*inodes) };
            let is_complete = u64::from_le_bytes(*is_complete) == 1;
            Some((Measurement { used, is_complete }, Duration::from_nanos(u64::from_le_bytes(*cost))))
        }
        _ => None,
    }
}

/// Whether a child was stopped by somebody.
fn is_stopped(child: Pid) -> bool {
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(child), stopped).is_ok_and(|status| status.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: DiskUsage = DiskUsage { bytes: 1 << 20, inodes: 10 };

    /// What was found beyond help is measured again when somebody asks, since the host may have mended it.
    #[test]
    fn beyond_help_is_not_for_ever() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_str().expect("UTF-8").to_owned();
        let quota = Quota { path, allowed: ALLOWED, counted: Counted::Everything };
        let mut watch = Watch::new(quota, Duration::ZERO).expect("a folder");
        watch.is_stale = false;
        assert_eq!((watch.is_beyond(), watch.next_look(false)), (None, None));
        let used = plus(beyond(ALLOWED), DiskUsage { bytes: 1, inodes: 0 });
        watch.judge(used, DiskUsage::default());
        assert_eq!(watch.next_look(false), None);
        assert_eq!(watch.is_beyond(), Some(QuotaExcess { used, allowed: ALLOWED }));
        assert!(watch.next_look(false).is_some());
        // What file operations replaced may not be there any more.
        watch.judge(DiskUsage::default(), DiskUsage::default());
        watch.change_begins();
        watch.change_is_over(Some(used));
        assert_eq!(watch.is_beyond(), None);
        assert_eq!(watch.room().used, used);
    }

    /// Also when the machine is too slow for a measurement beside the first command.
    #[test]
    fn what_is_there_at_the_greeting_is_nobody_s_fault_and_what_is_more_later_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_str().expect("UTF-8").to_owned();
        let quota = Quota { path, allowed: ALLOWED, counted: Counted::Everything };
        let nothing = DiskUsage::default();
        let mut watch = Watch::new(quota.clone(), Duration::ZERO).expect("a folder");
        let more = plus(ALLOWED, SLACK);
        assert!(watch.judge(more, nothing).is_some());
        std::fs::write(folder.path().join("file"), vec![1; 2 << 20]).expect("written");
        let mut watch = Watch::new(quota, Duration::ZERO).expect("a folder");
        assert_eq!(watch.state, State::Over(watch.used.expect("measured")));
        assert_eq!(watch.judge(watch.used.expect("measured"), nothing), None);
        assert!(watch.judge(plus(more, more), nothing).is_some());
    }

    /// A measurement is no picture of one moment.
    #[test]
    fn what_may_have_been_counted_twice_ends_nobody() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_str().expect("UTF-8").to_owned();
        let quota = Quota { path, allowed: ALLOWED, counted: Counted::Everything };
        let mut watch = Watch::new(quota, Duration::ZERO).expect("a folder");
        let nothing = DiskUsage::default();
        let full = DiskUsage { bytes: 0, inodes: ALLOWED.inodes };
        let more = DiskUsage { bytes: 0, inodes: ALLOWED.inodes + 2 };
        watch.judge(nothing, nothing);
        // One that is under way, one that failed, and one that wrote a file.
        watch.change_begins();
        assert_eq!(watch.doubt(), ALLOWED);
        watch.change_is_over(None);
        assert_eq!(watch.doubt(), ALLOWED);
        watch.unsettled = watch.changing;
        watch.change_begins();
        watch.change_is_over(Some(DiskUsage { bytes: 4096, inodes: 1 }));
        assert_eq!(watch.doubt(), DiskUsage { bytes: 4096, inodes: 1 });
        // So one too many is no proof; two are.
        watch.is_stale = false;
        let one = DiskUsage { bytes: 0, inodes: ALLOWED.inodes + 1 };
        assert_eq!((watch.judge(one, watch.doubt()), watch.used), (None, Some(full)));
        assert!(watch.is_stale);
        assert!(watch.judge(more, watch.doubt()).is_some());
    }
}
