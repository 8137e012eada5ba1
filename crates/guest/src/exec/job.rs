//! A running program, on the guest's side: one state machine each.
//!
//! State: captured output, until the host has it. When the guest crashes, the kernel signals the shim, and the
//! shim kills the program. The output is lost.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::process::{Pid, Rlimit};

use conjure_guest::protocol::{
    ExecEnd, ExecReply, ExecRequest, GuestError, ProcessLimits, ProgramLifetime, ReachedLimits, Reply,
    StdinMode, StreamId,
};

use crate::confinement::{CommandConfinement, EventCounts, OomScore};
use crate::error::CreditError;
use crate::job::{
    AbortReason, JobContext, JobFd, KILL_RETRY_DELAY, PollInterest, ReadOutcome, exhausted, kill,
    next_kill_delay, pipe_from_child, pipe_to_child, read, request_stop,
};
use crate::pipe_writer::{PipeFraming, PipeWriter};
use crate::sys;

use super::output_stream::{OutputStream, read_output};
use super::shim::{self, ShimLaunch};
use super::shim_pool::{MemoryFootprint, Shim, ShimPool};
use super::shim_protocol::{LaunchRequest, Leftovers, ShimExit, ShimReport, channel};

/// After the program has exited, the call ends once its output was quiet for this long, even if a process still holds
/// the pipe.
pub(super) const DRAIN: Duration = Duration::from_millis(100);

/// After the program has exited, the call ends after this time at the latest, even if a leftover process keeps
/// writing.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(1);

/// What all programs of this sandbox have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExecEnv<'a> {
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) workdir: &'a str,
    pub(crate) open_files: Rlimit,
    pub(crate) limits: &'a ProcessLimits,
    /// The confinement of each program, in addition to the guest's own.
    pub(crate) confinement: &'a CommandConfinement,
    pub(crate) oom_score: &'a OomScore,
    pub(crate) null: BorrowedFd<'a>,
    pub(crate) write_access: WriteAccess,
    /// How much of the guest's memory a forked shim would hold.
    pub(crate) footprint: MemoryFootprint,
}

/// Whether a program may write to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteAccess {
    Allowed,
    /// The directory exceeds its quota: programs may remove files, and no file may grow.
    Forbidden,
}

/// Forks a shim that starts with this request.
fn fork_shim(
    launch: &LaunchRequest<'_>,
    env: &ExecEnv<'_>,
    standard: [BorrowedFd<'_>; 3],
) -> Result<Shim, GuestError> {
    let (own, shim_end) = channel().map_err(exhausted)?;
    let launch = ShimLaunch {
        request: launch,
        env: env.env,
        workdir: env.workdir,
        open_files: env.open_files,
        filter: &env.confinement.syscall_filter,
        guest: rustix::process::getpid(),
    };
    let mut descriptors = Vec::from(standard);
    descriptors.push(shim_end.as_fd());
    descriptors.extend(env.confinement.landlock_ruleset.as_ref().map(AsFd::as_fd));
    let fork = || sys::fork(&descriptors, |owned| shim::run(&launch, owned));
    let pid = env.oom_score.with_raised_score(fork).map_err(exhausted)?;
    Ok(Shim { pid, channel: own, footprint: env.footprint })
}

/// The phase of a program.
#[derive(Debug)]
pub(super) enum Phase {
    /// The program runs.
    Running,
    /// The program and its descendants are being killed.
    Killing { reason: AbortReason, since: Duration },
    /// The program exited, and its output is still being read.
    Draining { end: ExecEnd, since: Duration, last: Duration },
    /// Captured output is being sent to the host.
    Delivering { end: ExecEnd },
}

/// A program that runs, has exited, or is being killed.
#[derive(Debug)]
pub(crate) struct ExecJob {
    /// The shim, until it is reaped or becomes idle.
    pub(super) shim: Option<Pid>,
    /// The channel to the shim, until the shim has reported.
    shim_channel: Option<OwnedFd>,
    footprint: MemoryFootprint,
    report: Option<ShimReport>,
    /// The idle shim, once the program left nothing running.
    idle: Option<Shim>,
    pub(super) stdin: Option<PipeWriter>,
    pub(super) outputs: [OutputStream; 2],
    lifetime: ProgramLifetime,
    pub(super) phase: Phase,
    started: Duration,
    pub(super) ended: Option<Duration>,
    /// The process limit, for which the kernel keeps no counter of refusals.
    pub(super) process_limit: Option<u64>,
    /// The sandbox's counters before the program started.
    pub(super) counts_before: EventCounts,
    pub(super) limits_hit: ReachedLimits,
}

impl ExecJob {
    /// Starts a program. Also returns the shim's process id.
    pub(crate) fn start(
        request: &ExecRequest,
        env: &ExecEnv<'_>,
        pool: &mut ShimPool,
        cx: &mut JobContext<'_>,
    ) -> Result<(Self, Pid), GuestError> {
        let (stdout, stdout_to) = pipe_from_child()?;
        let stderr = if request.merge_stderr { None } else { Some(pipe_from_child()?) };
        let stdin = match request.stdin {
            StdinMode::Null => None,
            StdinMode::Stream => Some(pipe_to_child()?),
        };
        let counts_before = cx.cgroup_events.counts();
        let mut limits = request.limits.or(*env.limits);
        if env.write_access == WriteAccess::Forbidden {
            limits.file_bytes = Some(0);
        }
        let launch = LaunchRequest { request: Cow::Borrowed(request), limits };
        let standard = [
            stdin.as_ref().map_or(env.null, |(from, _)| from.as_fd()),
            stdout_to.as_fd(),
            stderr.as_ref().map_or(stdout_to.as_fd(), |(_, to)| to.as_fd()),
        ];
        let Shim { pid, channel: shim_channel, footprint } = match pool.try_reuse(&launch, standard) {
            Some(shim) => shim,
            None => fork_shim(&launch, env, standard)?,
        };
        let job = Self {
            shim: Some(pid),
            shim_channel: Some(shim_channel),
            footprint,
            report: None,
            idle: None,
            stdin: stdin.map(|(_, to)| PipeWriter::new(to, PipeFraming::Raw, cx.channel, cx.frames)),
            outputs: [
                OutputStream::new(StreamId::Stdout, Some(stdout), request.output),
                OutputStream::new(StreamId::Stderr, stderr.map(|(from, _)| from), request.output),
            ],
            lifetime: request.lifetime,
            phase: Phase::Running,
            started: cx.now,
            ended: None,
            process_limit: limits.processes,
            counts_before,
            limits_hit: ReachedLimits::default(),
        };
        Ok((job, pid))
    }

    /// Adds the descriptors to poll.
    pub(crate) fn interests<'a>(&'a self, room: usize, interests: &mut Vec<PollInterest<'a>>) {
        if let Some(shim_channel) = &self.shim_channel {
            interests.push((JobFd::Report, shim_channel.as_fd(), PollFlags::IN));
        }
        if let Some(pipe) = self.stdin.as_ref().and_then(PipeWriter::wants_to_write) {
            interests.push((JobFd::Input, pipe, PollFlags::OUT));
        }
        for output in &self.outputs {
            if let Some(pipe) = output.wants_to_read(room) {
                interests.push((JobFd::Output(output.stream()), pipe, PollFlags::IN));
            }
        }
    }

    /// Handles a descriptor that is ready.
    pub(crate) fn ready(&mut self, port: JobFd, cx: &mut JobContext<'_>) {
        match port {
            JobFd::Report => self.read_report(cx),
            JobFd::Input => {
                if let Some(input) = &mut self.stdin {
                    input.write(cx.channel, cx.frames);
                }
            }
            JobFd::Output(stream) => {
                if read_output(&mut self.outputs, stream, cx)
                    && let Phase::Draining { last, .. } = &mut self.phase
                {
                    *last = cx.now;
                }
            }
        }
    }

    fn read_report(&mut self, cx: &mut JobContext<'_>) {
        if self.report.is_some() {
            return;
        }
        let Some(shim_channel) = &self.shim_channel else { return };
        match read(shim_channel, cx.scratch) {
            ReadOutcome::Bytes(length) => {
                self.report = ShimReport::decode(cx.scratch.get(..length).unwrap_or_default());
                // A malformed report counts as the end of the shim.
                if self.report.is_none() {
                    self.shim_channel = None;
                }
            }
            ReadOutcome::Nothing => return,
            ReadOutcome::End => self.shim_channel = None,
        }
        match (&self.report, &self.phase) {
            (None, _) => {}
            // The shim reports no more when processes are left over, or after it got SIGTERM.
            (Some(ShimReport::Exited(ShimExit { leftovers: Leftovers::Some, .. })), _)
            | (Some(_), Phase::Killing { .. }) => self.shim_channel = None,
            (
                Some(ShimReport::Exited(ShimExit { leftovers: Leftovers::None, .. }) | ShimReport::Failed(_)),
                _,
            ) => {
                self.idle = self.shim.take().zip(self.shim_channel.take()).map(|(pid, shim_channel)| Shim {
                    pid,
                    channel: shim_channel,
                    footprint: self.footprint,
                });
            }
        }
    }

    /// Takes the shim that this program no longer needs.
    pub(crate) fn take_idle_shim(&mut self) -> Option<Shim> {
        self.idle.take()
    }

    /// Accepts data for standard input.
    pub(crate) fn data(&mut self, content: &[u8], cx: &mut JobContext<'_>) -> Result<(), CreditError> {
        match &mut self.stdin {
            Some(input) => input.push(content, cx.channel, cx.frames),
            // The program has exited, and the host may not know yet. The data is dropped.
            None if content.is_empty() || self.ended.is_some() => Ok(()),
            None => Err(CreditError::BeyondCredit),
        }
    }

    /// Marks the end of standard input.
    pub(crate) fn end_of_data(&mut self, cx: &mut JobContext<'_>) {
        if let Some(input) = &mut self.stdin {
            input.end(cx.channel, cx.frames);
        }
    }

    /// Aborts the program. A program that has exited cannot time out. It can be cancelled, which also ends its
    /// leftover processes.
    pub(crate) fn abort(&mut self, reason: AbortReason, now: Duration) {
        // The idle shim may get SIGTERM, too.
        self.idle = None;
        match (&mut self.phase, reason) {
            (Phase::Running, _)
            | (Phase::Draining { .. } | Phase::Delivering { .. }, AbortReason::Cancelled) => {
                self.check_process_limit();
                if let Some(shim) = self.shim {
                    request_stop(shim);
                }
                self.phase = Phase::Killing { reason, since: now };
            }
            (Phase::Draining { end, .. }, AbortReason::TimedOut) => {
                let end = *end;
                self.phase = Phase::Delivering { end };
            }
            (Phase::Killing { reason: was, .. }, AbortReason::Cancelled) => *was = reason,
            _ => {}
        }
    }

    /// Whether the program runs, and nothing is ending it.
    pub(crate) const fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    /// Whether it lives between the host's calls, so that it can be paused.
    pub(crate) fn lives_between_calls(&self) -> bool {
        self.lifetime == ProgramLifetime::Session
    }

    /// Whether its shim was killed by a process other than the guest.
    pub(crate) const fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Killing { reason: AbortReason::Lost, .. })
    }

    /// Whether its timeout still applies. It does not apply while the program is being killed, nor while the host
    /// receives output.
    pub(crate) fn has_deadline(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Draining { .. })
    }

    /// Records that the shim was reaped.
    pub(crate) fn reaped(&mut self, cx: &mut JobContext<'_>) {
        self.read_report(cx);
        (self.shim, self.shim_channel, self.idle) = (None, None, None);
    }

    /// When to call [`ExecJob::advance`] again if nothing else happens.
    pub(crate) fn next_wakeup(&self, now: Duration) -> Option<Duration> {
        match self.phase {
            Phase::Killing { since, .. } => Some(next_kill_delay(since, now)),
            Phase::Draining { since, .. } if self.is_ending_leftovers(now) => Some(since + KILL_RETRY_DELAY),
            Phase::Draining { since, last, .. } => Some((last + DRAIN).min(since + DRAIN_MAX)),
            Phase::Running | Phase::Delivering { .. } => None,
        }
    }

    /// Continues as far as possible. Returns the result once the job has ended.
    pub(crate) fn advance(&mut self, cx: &mut JobContext<'_>) -> Option<Result<Reply, GuestError>> {
        if let Phase::Running = self.phase {
            match self.report.take() {
                Some(ShimReport::Exited(ended)) => {
                    let end = self.classify(ended.status, cx);
                    if ended.leftovers == Leftovers::Some {
                        self.end_leftovers_at_limit();
                    }
                    self.end_at(end, cx.now);
                }
                Some(ShimReport::Failed(error)) => return Some(Err(error)),
                None if self.shim_channel.is_none() => self.abort(AbortReason::Lost, cx.now),
                None => {}
            }
        }
        if let Phase::Killing { reason, since } = self.phase {
            if self.shim.is_some() && cx.now >= since + KILL_RETRY_DELAY {
                // The shim's children become the guest's children, and the reaper kills them.
                self.shim.inspect(|shim| kill(*shim));
            }
            // A process that cannot be killed must not delay the reply endlessly.
            let is_over =
                self.shim.is_none() && !cx.is_killing_orphans || cx.now >= since + 2 * KILL_RETRY_DELAY;
            if is_over {
                self.read_event_counts(cx, reason == AbortReason::Lost);
                let end = match reason {
                    AbortReason::TimedOut => ExecEnd::TimedOut,
                    AbortReason::Cancelled => ExecEnd::Cancelled,
                    // The kernel may kill the shim besides the program, if the program's memory is not free yet.
                    AbortReason::Lost if self.limits_hit.memory => ExecEnd::OutOfMemory,
                    AbortReason::Lost => ExecEnd::Lost,
                    AbortReason::OverQuota(excess) => ExecEnd::QuotaExceeded(excess),
                };
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
            reached: self.limits_hit,
        })))
    }

    /// Returns the pipes that leftover processes still hold.
    pub(crate) fn into_pipes(self) -> Vec<OwnedFd> {
        self.outputs.into_iter().filter_map(OutputStream::into_pipe).collect()
    }
}
