//! Builds the poll set, and waits until a descriptor is ready. It owns no state.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::EventLoop;
use super::open_job::Job;
use super::poll_token::PollToken;
use crate::clock;
use crate::error::FatalError;
use crate::job::PollInterest;

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
