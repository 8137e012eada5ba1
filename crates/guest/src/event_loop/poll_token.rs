//! [`PollToken`]: what a descriptor in the poll set belongs to, and the order of those that are ready.

use rustix::process::Pid;

use crate::job::JobFd;
use crate::tunnel;

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
