//! The guest as the keeper of its quota: measuring, and ending what runs when it is exceeded. Without a quota it does
//! nothing.

use conjure_guest::protocol::{GuestError, QuotaExcess, Reply};

use super::{Child, Guest, Job, NO_OPERATION, Session};
use crate::clock;
use crate::job::{Cut, tell_to_end};
use crate::pause::Pause;
use crate::quota::{Look, Watch, takes};

/// Everything stands still, for a measurement.
#[derive(Debug)]
pub(super) struct Standstill {
    pause: Pause,
    /// Whether something was started since.
    pub(super) was_entered: bool,
}

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

    /// Begins to measure when it is due, and has what runs stand still when that is needed.
    pub(super) fn look_at_quota(&mut self) {
        let is_busy = self.is_writing();
        let stands_still = self.standstill.is_some();
        match self.watch().map(|watch| watch.look(clock::now(), is_busy, stands_still)) {
            None | Some(Look::Nothing) => {}
            Some(Look::Measures(pid)) => {
                self.children.insert(pid, Child { channel: NO_OPERATION, unwanted: Vec::new() });
            }
            Some(Look::Measured(excess)) => self.go_on(excess),
            Some(Look::StandStill) => self.stand_still(),
            Some(Look::Exceeded(excess)) => self.end_for_quota(excess),
        }
    }

    /// Has everything stand still until it was measured, which is begun when it is looked the next time.
    fn stand_still(&mut self) {
        let children = &self.children;
        match Pause::begin(None, |pid| children.contains_key(&pid)) {
            Ok((pause, _)) => {
                self.standstill = Some(Standstill { pause, was_entered: false });
                self.look_at_quota();
            }
            Err(_) => self.was_disturbed(),
        }
    }

    /// Takes the result of a measurement.
    pub(super) fn quota_was_measured(&mut self) {
        let Some(watch) = self.watch() else { return };
        let excess = watch.ready(clock::now());
        if watch.is_measuring() {
            return;
        }
        self.go_on(excess);
    }

    /// It was measured: what stands still goes on, or all that runs is ended.
    fn go_on(&mut self, excess: Option<QuotaExcess>) {
        if let Some(excess) = excess {
            self.end_for_quota(excess);
        } else if let Some(Standstill { pause, was_entered }) = self.standstill.take() {
            let children = &self.children;
            let is_spared = |pid| children.contains_key(&pid);
            // Who has a timer wake it was not counted, and what the host has started since is no attack.
            let is_disturbed = !was_entered && pause.is_disturbed(is_spared);
            pause.end(is_spared);
            if is_disturbed {
                self.was_disturbed();
            }
        }
    }

    /// What was to stand still does not.
    fn was_disturbed(&mut self) {
        if let Some(excess) = self.watch().and_then(|watch| watch.was_disturbed(clock::now())) {
            self.end_for_quota(excess);
        }
    }

    /// Ends all that runs: who wrote too much cannot be known.
    fn end_for_quota(&mut self, excess: QuotaExcess) {
        let now = clock::now();
        // What stands still is killed as it is.
        self.standstill = None;
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
