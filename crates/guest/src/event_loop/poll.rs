//! Builds the poll set, and orders what is ready. It owns no state.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Pid;

use super::EventLoop;
use super::job_table::Job;
use crate::error::FatalError;
use crate::job::{JobFd, PollInterest};
use crate::{clock, tunnel};

/// What a descriptor in the poll set belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PollToken {
    Host,
    HostOutput,
    Signals,
    Job(u32, JobFd),
    Tunnel(tunnel::TunnelFd),
    AbandonedPipe(Pid),
    Quota,
}

impl EventLoop {
    /// Waits until a descriptor is ready or a deadline has passed.
    pub(super) fn wait(&self) -> Result<Vec<PollToken>, FatalError> {
        let mut tokens = vec![PollToken::Signals];
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let (stdin, stdout) = (rustix::stdio::stdin(), rustix::stdio::stdout());
        if self.frames.has_room_for_control() {
            tokens.push(PollToken::Host);
            fds.push(PollFd::from_borrowed_fd(stdin, PollFlags::IN));
        }
        if !self.frames.is_empty() {
            tokens.push(PollToken::HostOutput);
            fds.push(PollFd::from_borrowed_fd(stdout, PollFlags::OUT));
        }
        let now = clock::now();
        let mut due = self.orphan_kill.map(|(_, next)| next);
        let mut interests: Vec<PollInterest<'_>> = Vec::new();
        for (&channel_id, channel) in &self.channels {
            let write_budget = if self.frames.has_room_for_data() {
                usize::try_from(channel.credit).unwrap_or(usize::MAX)
            } else {
                0
            };
            let look = match &channel.job {
                Job::Exec(job) => {
                    job.interests(write_budget, &mut interests);
                    job.next_wakeup(now)
                }
                Job::File(job) => {
                    job.interests(write_budget, &mut interests);
                    job.next_wakeup(now)
                }
            };
            for (port, fd, events) in interests.drain(..) {
                tokens.push(PollToken::Job(channel_id, port));
                fds.push(PollFd::from_borrowed_fd(fd, events));
            }
            let deadline = channel.deadline.filter(|_| channel.job.has_deadline());
            due = [due, look, deadline].into_iter().flatten().min();
        }
        for (&pid, child) in &self.children {
            for pipe in &child.abandoned_pipes {
                tokens.push(PollToken::AbandonedPipe(pid));
                fds.push(PollFd::new(pipe, PollFlags::IN));
            }
        }
        if let Some(monitor) = self.config.as_ref().and_then(|session| session.quota.as_ref()) {
            if let Some(pipe) = monitor.result_from() {
                tokens.push(PollToken::Quota);
                fds.push(PollFd::from_borrowed_fd(pipe, PollFlags::IN));
            }
            due = [due, monitor.next_wakeup(self.is_writing())].into_iter().flatten().min();
        }
        self.tunnels.interests(&self.frames, |port, fd, events| {
            tokens.push(PollToken::Tunnel(port));
            fds.push(PollFd::from_borrowed_fd(fd, events));
        });
        due = [due, self.tunnels.next_wakeup()].into_iter().flatten().min();
        let timeout = due.map(|due| {
            let left = due.saturating_sub(clock::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR | Errno::AGAIN) => return Ok(Vec::new()),
            Err(errno) => return Err(FatalError::System { doing: "wait for events", errno }),
        }
        Ok(tokens
            .into_iter()
            .zip(fds)
            .filter_map(|(token, fd)| (!fd.revents().is_empty()).then_some(token))
            .collect())
    }
}

/// Rotates the sources of content, so that a different one is first in each iteration. The first one may fill the
/// frame queue and leave no room for the others.
pub(super) fn rotate(ready: &mut [PollToken], round: usize) {
    let is_first =
        |token: &PollToken| matches!(token, PollToken::Signals | PollToken::Host | PollToken::HostOutput);
    let first = ready.iter().take_while(|token| is_first(token)).count();
    if let Some(rest) = ready.get_mut(first..).filter(|rest| !rest.is_empty()) {
        rest.rotate_left(round % rest.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_first_once_per_cycle_and_the_host_always_comes_first() {
        let all = [
            PollToken::Signals,
            PollToken::Host,
            PollToken::Job(1, JobFd::Report),
            PollToken::Tunnel(tunnel::TunnelFd::Listener),
            PollToken::Tunnel(tunnel::TunnelFd::Connection(7)),
        ];
        let firsts = [4, 2, 3].map(|round| {
            let mut ready = all;
            rotate(&mut ready, round);
            assert_eq!(ready[..2], all[..2]);
            assert!(all.iter().all(|token| ready.contains(token)));
            ready[2]
        });
        assert_eq!(firsts, [all[3], all[4], all[2]]);
        rotate(&mut [PollToken::Signals], 1);
        rotate(&mut [], 1);
    }
}
