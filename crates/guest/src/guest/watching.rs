//! The guest as the keeper of its quota: measuring, and ending what runs when it is exceeded. Without a quota it does
//! nothing.

use conjure_guest::protocol::{GuestError, QuotaExcess, Reply};

use super::{Child, Guest, Job, NO_OPERATION, Session};
use crate::clock;
use crate::job::{Cut, tell_to_end};
use crate::quota::{Watch, takes};

impl Guest {
    fn watch(&mut self) -> Option<&mut Watch> {
        self.session.as_mut().and_then(|session| session.watch.as_mut())
    }

    /// Whether anything runs that could write: a program, or what one has left and does not stand still.
    pub(super) fn is_writing(&self) -> bool {
        self.pause.is_none() && self.children.values().any(|child| self.is_shim(child))
    }

    fn is_shim(&self, child: &Child) -> bool {
        let job = self.channels.get(&child.channel).map(|channel| &channel.job);
        // A worker's operation is over only when its disk does not answer.
        child.channel != NO_OPERATION && !matches!(job, Some(Job::File(_)))
    }

    /// Begins to measure when it is due.
    pub(super) fn look_at_quota(&mut self) {
        let is_busy = self.is_writing();
        if let Some(pid) = self.watch().and_then(|watch| watch.look(clock::now(), is_busy)) {
            self.children.insert(pid, Child { channel: NO_OPERATION, unwanted: Vec::new() });
        }
    }

    /// Takes the result of a measurement.
    pub(super) fn quota_was_measured(&mut self) {
        if let Some(excess) = self.watch().and_then(|watch| watch.ready(clock::now())) {
            self.end_for_quota(excess);
        }
    }

    /// Ends all that runs: who wrote too much cannot be known.
    fn end_for_quota(&mut self, excess: QuotaExcess) {
        let now = clock::now();
        for channel in self.channels.values_mut() {
            if let Job::Exec(job) = &mut channel.job {
                job.cut(Cut::OverQuota(excess), now);
            }
        }
        // It is told to end below, as are those that were about to be idle.
        self.shims.let_go();
        // Programs that are being ended are told twice, which does nothing.
        for (pid, child) in &self.children {
            if self.is_shim(child) {
                tell_to_end(*pid);
            }
        }
    }

    /// Counts what a file operation wrote, until it is measured.
    pub(super) fn note_written(&mut self, number: u32, result: &[u8]) {
        let job = self.channels.get(&number).map(|channel| &channel.job);
        let is_change = matches!(job, Some(Job::File(job)) if job.is_change());
        let Some(Session { watch: Some(watch), .. }) = &mut self.session else { return };
        if !is_change {
            return;
        }
        let more = match serde_json::from_slice::<Result<Reply, GuestError>>(result) {
            // What went with a file that was replaced is not known, so this is the most that it can be.
            Ok(Ok(Reply::Write { size, folders, .. })) => Some(takes(size, folders)),
            Ok(Ok(Reply::Folder { folders })) => Some(takes(0, folders)),
            _ => None,
        };
        watch.change_is_over(more);
    }
}
