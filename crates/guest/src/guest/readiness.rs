//! What to wait for, and in which order to take what is ready. It owns no state.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Pid;

use super::{Fatal, Guest, Job};
use crate::job::{Interest, Port};
use crate::{clock, tunnel};

/// What a descriptor in the poll set belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    Host,
    Outbox,
    Signals,
    Job(u32, Port),
    Tunnel(tunnel::Port),
    Unwanted(Pid),
    Quota,
}

impl Guest {
    /// Waits until something is ready or due.
    pub(super) fn wait(&self) -> Result<Vec<Token>, Fatal> {
        let mut tokens = vec![Token::Signals];
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let (stdin, stdout) = (rustix::stdio::stdin(), rustix::stdio::stdout());
        if self.outbox.takes_control() {
            tokens.push(Token::Host);
            fds.push(PollFd::from_borrowed_fd(stdin, PollFlags::IN));
        }
        if !self.outbox.is_empty() {
            tokens.push(Token::Outbox);
            fds.push(PollFd::from_borrowed_fd(stdout, PollFlags::OUT));
        }
        let now = clock::now();
        let mut due = self.sweep.map(|(_, next)| next);
        let mut interests: Vec<Interest<'_>> = Vec::new();
        for (&number, channel) in &self.channels {
            let room = if self.outbox.takes_content() {
                usize::try_from(channel.credit).unwrap_or(usize::MAX)
            } else {
                0
            };
            let look = match &channel.job {
                Job::Exec(job) => {
                    job.interests(room, &mut interests);
                    job.next_look(now)
                }
                Job::File(job) => {
                    job.interests(room, &mut interests);
                    job.next_look(now)
                }
            };
            for (port, fd, events) in interests.drain(..) {
                tokens.push(Token::Job(number, port));
                fds.push(PollFd::from_borrowed_fd(fd, events));
            }
            let deadline = channel.deadline.filter(|_| channel.job.has_deadline());
            due = [due, look, deadline].into_iter().flatten().min();
        }
        for (&pid, child) in &self.children {
            for pipe in &child.unwanted {
                tokens.push(Token::Unwanted(pid));
                fds.push(PollFd::new(pipe, PollFlags::IN));
            }
        }
        if let Some(watch) = self.session.as_ref().and_then(|session| session.watch.as_ref()) {
            if let Some(pipe) = watch.result_from() {
                tokens.push(Token::Quota);
                fds.push(PollFd::from_borrowed_fd(pipe, PollFlags::IN));
            }
            due = [due, watch.next_look(self.is_writing())].into_iter().flatten().min();
        }
        self.tunnels.interests(&self.outbox, |port, fd, events| {
            tokens.push(Token::Tunnel(port));
            fds.push(PollFd::from_borrowed_fd(fd, events));
        });
        due = [due, self.tunnels.next_look()].into_iter().flatten().min();
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
            Err(errno) => return Err(Fatal::System { doing: "wait for events", errno }),
        }
        Ok(tokens
            .into_iter()
            .zip(fds)
            .filter_map(|(token, fd)| (!fd.revents().is_empty()).then_some(token))
            .collect())
    }
}

/// Lets another of those that have content for the host be the first in each round: who comes first may leave no
/// room in the outbox for the others.
pub(super) fn take_turns(ready: &mut [Token], round: usize) {
    let is_first = |token: &Token| matches!(token, Token::Signals | Token::Host | Token::Outbox);
    let first = ready.iter().take_while(|token| is_first(token)).count();
    if let Some(rest) = ready.get_mut(first..).filter(|rest| !rest.is_empty()) {
        rest.rotate_left(round % rest.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_first_once_in_a_cycle_and_the_host_is_always_heard_first() {
        let all = [
            Token::Signals,
            Token::Host,
            Token::Job(1, Port::Report),
            Token::Tunnel(tunnel::Port::Listener),
            Token::Tunnel(tunnel::Port::Connection(7)),
        ];
        let firsts = [4, 2, 3].map(|round| {
            let mut ready = all;
            take_turns(&mut ready, round);
            assert_eq!(ready[..2], all[..2]);
            assert!(all.iter().all(|token| ready.contains(token)));
            ready[2]
        });
        assert_eq!(firsts, [all[3], all[4], all[2]]);
        take_turns(&mut [Token::Signals], 1);
        take_turns(&mut [], 1);
    }
}
