//! A program: the guest's side, a state machine for each.
//!
//! State: the output that is kept, until the host took it. In a crash of the guest the shim is told by the
//! kernel and kills the program; the output is lost.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::process::{Pid, Rlimit};

use conjure_guest::protocol::{
    ExecEnd, ExecReply, ExecRequest, GuestError, LimitsReached, ProcessLimits, Reply, StdinMode, StreamId,
};

use crate::feed::{Feed, FeedError, Framing};
use crate::fortress::{CommandWalls, Mark, OomScore};
use crate::job::{
    Cut, Cx, Got, Interest, PATIENCE, Port, exhausted, kill, next_patience, pipe_from_child, pipe_to_child,
    read, tell_to_end,
};
use crate::{sys, tree};

use super::line::{Ended, Leaves, Order, Report, line};
use super::shim::{self, Launch};
use super::shims::{Burden, Shim, Shims};
use super::stream::Output;

/// A call ends when its output was quiet for so long after the program's end, whoever still holds the pipe.
const DRAIN: Duration = Duration::from_millis(100);

/// And at the latest after so long, when something that the program left running keeps writing.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// What all programs of this sandbox have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) workdir: &'a str,
    pub(crate) open_files: Rlimit,
    pub(crate) limits: &'a ProcessLimits,
    /// What each program is put under besides.
    pub(crate) walls: &'a CommandWalls,
    pub(crate) oom_score: &'a OomScore,
    pub(crate) null: BorrowedFd<'a>,
    pub(crate) writing: Writing,
    /// What a fork of the guest holds.
    pub(crate) burden: Burden,
}

/// Whether a program may write into files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    Allowed,
    /// The folder with a quota takes too much: files may be removed, and none may grow.
    Forbidden,
}

/// Forks a shim that begins with this order.
fn fork_shim(
    order: &Order<'_>,
    surroundings: &Surroundings<'_>,
    standard: [BorrowedFd<'_>; 3],
) -> Result<Shim, GuestError> {
    let (own, of_shim) = line().map_err(exhausted)?;
    let launch = Launch {
        order,
        env: surroundings.env,
        workdir: surroundings.workdir,
        open_files: surroundings.open_files,
        filter: &surroundings.walls.syscalls,
        guest: rustix::process::getpid(),
    };
    let mut descriptors = Vec::from(standard);
    descriptors.push(of_shim.as_fd());
    descriptors.extend(surroundings.walls.files.as_ref().map(AsFd::as_fd));
    let fork = || sys::fork(&descriptors, |owned| shim::run(&launch, owned));
    let pid = surroundings.oom_score.raised(fork).map_err(exhausted)?;
    Ok(Shim { pid, line: own, burden: surroundings.burden })
}

/// How far a program is.
#[derive(Debug)]
enum Phase {
    /// It runs.
    Running,
    /// It and everything below it is being killed.
    Killing { cut: Cut, since: Duration },
    /// It ended; what it wrote is still being read.
    Draining { end: ExecEnd, since: Duration, last: Duration },
    /// What was kept goes to the host.
    Delivering { end: ExecEnd },
}

/// A program that runs, ran, or is being killed.
#[derive(Debug)]
pub(crate) struct ExecJob {
    /// The shim, until it was reaped, or is idle again.
    shim: Option<Pid>,
    /// The line on which the shim reports, until it did.
    line: Option<OwnedFd>,
    burden: Burden,
    report: Option<Report>,
    /// The shim, once nothing is left below it.
    idle: Option<Shim>,
    stdin: Option<Feed>,
    outputs: [Output; 2],
    phase: Phase,
    started: Duration,
    ended: Option<Duration>,
    /// The limit of processes that the kernel does not count refusals for.
    processes: Option<u64>,
    /// The sandbox's counters before it started.
    mark: Mark,
    reached: LimitsReached,
}

impl ExecJob {
    /// Starts a program, and returns with it the shim's process id.
    pub(crate) fn start(
        request: &ExecRequest,
        surroundings: &Surroundings<'_>,
        shims: &mut Shims,
        cx: &mut Cx<'_>,
    ) -> Result<(Self, Pid), GuestError> {
        let (stdout, stdout_to) = pipe_from_child()?;
        let stderr = if request.merge_stderr { None } else { Some(pipe_from_child()?) };
        let stdin = match request.stdin {
            StdinMode::Null => None,
            StdinMode::Stream => Some(pipe_to_child()?),
        };
        let mark = cx.pressure.mark();
        let mut limits = request.limits.or(*surroundings.limits);
        if surroundings.writing == Writing::Forbidden {
            limits.file_bytes = Some(0);
        }
        let order = Order { request: Cow::Borrowed(request), limits };
        let standard = [
            stdin.as_ref().map_or(surroundings.null, |(from, _)| from.as_fd()),
            stdout_to.as_fd(),
            stderr.as_ref().map_or(stdout_to.as_fd(), |(_, to)| to.as_fd()),
        ];
        let Shim { pid, line, burden } = match shims.take_up(&order, standard) {
            Some(shim) => shim,
            None => fork_shim(&order, surroundings, standard)?,
        };
        let job = Self {
            shim: Some(pid),
            line: Some(line),
            burden,
            report: None,
            idle: None,
            stdin: stdin.map(|(_, to)| Feed::new(to, Framing::Plain, cx.channel, cx.outbox)),
            outputs: [
                Output::new(StreamId::Stdout, Some(stdout), request.output),
                Output::new(StreamId::Stderr, stderr.map(|(from, _)| from), request.output),
            ],
            phase: Phase::Running,
            started: cx.now,
            ended: None,
            processes: limits.processes,
            mark,
            reached: LimitsReached::default(),
        };
        Ok((job, pid))
    }

    /// What to poll for.
    pub(crate) fn interests<'a>(&'a self, room: usize, interests: &mut Vec<Interest<'a>>) {
        if let Some(line) = &self.line {
            interests.push((Port::Report, line.as_fd(), PollFlags::IN));
        }
        if let Some(pipe) = self.stdin.as_ref().and_then(Feed::wants_to_write) {
            interests.push((Port::Feed, pipe, PollFlags::OUT));
        }
        for output in &self.outputs {
            if let Some(pipe) = output.wants_to_read(room) {
                interests.push((Port::Output(output.stream()), pipe, PollFlags::IN));
            }
        }
    }

    /// A descriptor is ready.
    pub(crate) fn ready(&mut self, port: Port, cx: &mut Cx<'_>) {
        match port {
            Port::Report => self.read_report(cx),
            Port::Feed => {
                if let Some(feed) = &mut self.stdin {
                    feed.write(cx.channel, cx.outbox);
                }
            }
            Port::Output(stream) => {
                for output in self.outputs.iter_mut().filter(|output| output.stream() == stream) {
                    if output.read(cx)
                        && let Phase::Draining { last, .. } = &mut self.phase
                    {
                        *last = cx.now;
                    }
                }
            }
        }
    }

    fn read_report(&mut self, cx: &mut Cx<'_>) {
        if self.report.is_some() {
            return;
        }
        let Some(line) = &self.line else { return };
        match read(line, cx.scratch) {
            Got::Bytes(length) => {
                self.report = Report::decode(cx.scratch.get(..length).unwrap_or_default());
                // What no shim says is its end.
                if self.report.is_none() {
                    self.line = None;
                }
            }
            Got::Nothing => return,
            Got::End => self.line = None,
        }
        match (&self.report, &self.phase) {
            (None, _) => {}
            // What it left running is the shim's affair, which reports no more; nor does one that was told to end.
            (Some(Report::Ended(Ended { leaves: Leaves::Something, .. })), _)
            | (Some(_), Phase::Killing { .. }) => self.line = None,
            (Some(Report::Ended(Ended { leaves: Leaves::Nothing, .. }) | Report::Failed(_)), _) => {
                self.idle = self.shim.take().zip(self.line.take()).map(|(pid, line)| Shim {
                    pid,
                    line,
                    burden: self.burden,
                });
            }
        }
    }

    /// The shim that has no more to do for this program, once.
    pub(crate) fn take_idle(&mut self) -> Option<Shim> {
        self.idle.take()
    }

    /// Data for standard input.
    pub(crate) fn data(&mut self, content: &[u8], cx: &mut Cx<'_>) -> Result<(), FeedError> {
        match &mut self.stdin {
            Some(feed) => feed.push(content, cx.channel, cx.outbox),
            // After the program's end the host may not know yet: what was on its way is thrown away.
            None if content.is_empty() || self.ended.is_some() => Ok(()),
            None => Err(FeedError::BeyondCredit),
        }
    }

    /// The end of standard input.
    pub(crate) fn end_of_data(&mut self, cx: &mut Cx<'_>) {
        if let Some(feed) = &mut self.stdin {
            feed.end(cx.channel, cx.outbox);
        }
    }

    /// Ends the program early. A program that ended by itself meanwhile is not timed out, but may be cancelled:
    /// that ends what it left running, too.
    pub(crate) fn cut(&mut self, cut: Cut, now: Duration) {
        // It may be told to end, too.
        self.idle = None;
        match (&mut self.phase, cut) {
            (Phase::Running, _) | (Phase::Draining { .. } | Phase::Delivering { .. }, Cut::Cancelled) => {
                self.look_at_processes();
                if let Some(shim) = self.shim {
                    tell_to_end(shim);
                }
                self.phase = Phase::Killing { cut, since: now };
            }
            (Phase::Draining { end, .. }, Cut::TimedOut) => {
                let end = *end;
                self.phase = Phase::Delivering { end };
            }
            (Phase::Killing { cut: was, .. }, Cut::Cancelled) => *was = cut,
            _ => {}
        }
    }

    /// Whether the program has not ended, as far as is known, and nobody ends it.
    pub(crate) const fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    /// Whether its shim is gone, and nobody told it to end.
    pub(crate) const fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Killing { cut: Cut::Lost, .. })
    }

    /// Whether time still ends it: not once it is being killed or has ended, since the host's taking its
    /// output is the host's affair.
    pub(crate) fn has_deadline(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Draining { .. })
    }

    /// The shim was reaped.
    pub(crate) fn reaped(&mut self, cx: &mut Cx<'_>) {
        self.read_report(cx);
        (self.shim, self.line, self.idle) = (None, None, None);
    }

    /// When to look again, if nothing happens before.
    pub(crate) fn next_look(&self, now: Duration) -> Option<Duration> {
        match self.phase {
            Phase::Killing { since, .. } => Some(next_patience(since, now)),
            Phase::Draining { since, .. } if self.is_making_room(now) => Some(since + PATIENCE),
            Phase::Draining { since, last, .. } => Some((last + DRAIN).min(since + DRAIN_MAX)),
            Phase::Running | Phase::Delivering { .. } => None,
        }
    }

    /// Goes as far as it can. The result, when it is over.
    pub(crate) fn advance(&mut self, cx: &mut Cx<'_>) -> Option<Result<Reply, GuestError>> {
        if let Phase::Running = self.phase {
            match self.report.take() {
                Some(Report::Ended(ended)) => {
                    let end = self.classify(ended.status, cx);
                    if ended.leaves == Leaves::Something {
                        self.look_at_leftovers();
                    }
                    self.end_at(end, cx.now);
                }
                Some(Report::Failed(error)) => return Some(Err(error)),
                None if self.line.is_none() => self.cut(Cut::Lost, cx.now),
                None => {}
            }
        }
        if let Phase::Killing { cut, since } = self.phase {
            if self.shim.is_some() && cx.now >= since + PATIENCE {
                // Its children fall to the guest, which kills them in its own way.
                self.shim.inspect(|shim| kill(*shim));
            }
            // What cannot be killed does not hold up the answer for ever.
            let is_over = self.shim.is_none() && !cx.is_sweeping || cx.now >= since + 2 * PATIENCE;
            if is_over {
                let end = match cut {
                    Cut::TimedOut => ExecEnd::TimedOut,
                    Cut::Cancelled => ExecEnd::Cancelled,
                    Cut::Lost => ExecEnd::Lost,
                    Cut::OverQuota(excess) => ExecEnd::QuotaExceeded(excess),
                };
                self.look_at_pressure(cx, cut == Cut::Lost);
                self.end_at(end, cx.now);
            }
        }
        if let Phase::Draining { end, .. } = self.phase
            && self.is_drained(end, cx)
        {
            self.phase = Phase::Delivering { end };
        }
        let Phase::Delivering { end } = self.phase else { return None };
        let is_delivered = self.outputs.iter_mut().all(|output| output.deliver(cx));
        if !is_delivered && end != ExecEnd::Cancelled {
            return None;
        }
        let [stdout, stderr] = &self.outputs;
        let duration = self.ended.unwrap_or(cx.now).saturating_sub(self.started);
        Some(Ok(Reply::Exec(ExecReply {
            end,
            stdout: stdout.result(cx.spill.as_deref()),
            stderr: stderr.result(cx.spill.as_deref()),
            duration_us: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            reached: self.reached,
        })))
    }

    fn end_at(&mut self, end: ExecEnd, now: Duration) {
        self.ended.get_or_insert(now);
        self.stdin = None;
        for output in &mut self.outputs {
            output.mark_end();
        }
        self.phase = Phase::Draining { end, since: now, last: now };
    }

    /// Whether what the program left running is still being ended, which is waited for, for a while.
    fn is_making_room(&self, now: Duration) -> bool {
        let Phase::Draining { since, .. } = self.phase else { return false };
        self.reached.made_room && self.shim.is_some() && now < since + PATIENCE
    }

    /// Whether all that the program wrote was read. Pipes that something still holds open are given up on
    /// when they were quiet for a while; so is, after longer, what came in after the program's end.
    fn is_drained(&mut self, end: ExecEnd, cx: &mut Cx<'_>) -> bool {
        let Phase::Draining { since, last, .. } = self.phase else { return true };
        // The next program needs the room.
        if self.is_making_room(cx.now) {
            return false;
        }
        let is_cancelled = end == ExecEnd::Cancelled;
        if self.outputs.iter().all(Output::is_closed) {
            return true;
        }
        if is_cancelled {
            // The host wants no more than it already has room for.
            for output in &mut self.outputs {
                output.read(cx);
                output.discard(cx.scratch);
            }
            return true;
        }
        if cx.now >= last + DRAIN {
            // The guest may have been busy elsewhere: what is there by now counts.
            let mut moved = false;
            for output in &mut self.outputs {
                moved |= output.read(cx);
            }
            if !moved && !self.outputs.iter().any(Output::is_held_up) {
                return true;
            }
            self.phase = Phase::Draining { end, since, last: cx.now };
        }
        cx.now >= since + DRAIN_MAX && self.outputs.iter().all(Output::is_past_end)
    }

    fn classify(&mut self, status: i32, cx: &mut Cx<'_>) -> ExecEnd {
        let end = match (status & 0x7f, (status >> 8) & 0xff) {
            (0, code) => ExecEnd::Exited(code),
            (signal, _) => ExecEnd::Signaled(signal),
        };
        // A shell tells of a killed child as 128 + 9.
        let is_killed = matches!(end, ExecEnd::Signaled(9) | ExecEnd::Exited(137));
        self.look_at_pressure(cx, is_killed);
        if is_killed && self.reached.memory { ExecEnd::OutOfMemory } else { end }
    }

    /// Takes the kernel's counters, once the program has ended.
    fn look_at_pressure(&mut self, cx: &mut Cx<'_>, is_killed: bool) {
        let reached = cx.pressure.since(self.mark, is_killed);
        self.reached.memory |= reached.memory;
        self.reached.processes |= reached.processes;
    }

    /// Ends what the program left running, when that leaves no room for others.
    fn look_at_leftovers(&mut self) {
        self.look_at_processes();
        if self.reached.processes
            && let Some(shim) = self.shim
        {
            tell_to_end(shim);
            self.reached.made_room = true;
        }
    }

    /// No counter tells of a limit for each user, so the sandbox is at its limit of processes when there are nearly as many: some die
    /// while others are counted.
    fn look_at_processes(&mut self) {
        if let Some(limit) = self.processes {
            let enough = limit - limit / 8;
            self.reached.processes |= tree::count_tasks(enough) >= enough;
        }
    }

    /// The pipes that something left running still writes to.
    pub(crate) fn into_pipes(self) -> Vec<OwnedFd> {
        self.outputs.into_iter().filter_map(Output::into_pipe).collect()
    }
}
