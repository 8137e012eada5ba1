//! [`BatchResult`]: what one batch of a cleanup deleted and what remains, and the limits of a batch.

use std::collections::BTreeSet;
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock};

use crate::runtime::remote_cleanup::cleanup_note::CleanupNote;
use crate::runtime::remote_cleanup::deletion_report::{RemainingFiles, RemainingSkills, RemoteSkillOutcome};

/// How many consecutive failures of an account open its circuit breaker.
pub(super) const MAX_FAILURES: usize = 3;
/// The reason if there was no time for an attempt.
pub(super) const NO_TIME: &str = "there was no time for it yet";
/// How long the deletion of one file may take.
pub(super) const DELETE_TIMEOUT: Duration = Duration::from_secs(20);
/// The minimum wait for other tasks and processes that change notes.
const NOTE_LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of one batch.
#[derive(Debug, Default)]
pub(crate) struct BatchResult {
    /// How many files were deleted.
    pub(crate) deleted: u64,
    /// The remaining files of sessions whose records are deleted.
    pub(crate) remaining: Vec<RemainingFiles>,
    /// The remaining skills of a tenant.
    pub(crate) skills: Vec<RemainingSkills>,
    /// Why some deletions failed. They are to be tried again later, and not at once.
    pub(crate) failure: Option<String>,
    /// Whether some deletions were skipped because the service did not respond just before. They have not failed.
    pub(crate) is_skipped: bool,
}

impl BatchResult {
    /// The result if nothing was tried: everything in the note remains.
    pub(super) fn untried(note: &CleanupNote, reason: &str) -> Self {
        let skills = note.skills.as_ref().map(|skills| RemainingSkills {
            service: skills.account.service.clone(),
            skills: skills.ids.clone(),
            outcome: RemoteSkillOutcome::DeletedLater,
            reason: reason.to_owned(),
        });
        Self {
            remaining: note.remaining.iter().map(|entry| entry.report(reason)).collect(),
            skills: skills.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// The result for some files of one session, or for some skills, by their ids.
#[derive(Default)]
pub(super) struct DeleteResult {
    /// What was deleted. Also skills that were uploaded again.
    pub(super) deleted: BTreeSet<String>,
    /// What the service refused to delete, or for which there is no key.
    pub(super) refused: BTreeSet<String>,
    /// The reason of the last refusal.
    pub(super) refusal_reason: Option<String>,
    /// What may be deleted later.
    pub(super) retryable: BTreeSet<String>,
    /// The reason of the last such failure.
    pub(super) retry_reason: Option<String>,
    /// Whether the account was skipped because of the circuit breaker.
    pub(super) is_skipped: bool,
}

impl DeleteResult {
    pub(super) fn refused(&mut self, id: &str, reason: String) {
        self.refused.insert(id.to_owned());
        self.refusal_reason = Some(reason);
    }

    pub(super) fn retryable(&mut self, id: &str, reason: String) {
        self.retryable.insert(id.to_owned());
        self.retry_reason = Some(reason);
    }

    /// Counts all of these that are not deleted as refused.
    pub(super) fn all_refused(mut self, ids: &[String], reason: String) -> Self {
        self.refused = ids.iter().filter(|id| !self.deleted.contains(*id)).cloned().collect();
        self.refusal_reason = Some(reason);
        self
    }
}

/// The deadline for waiting for others that change notes: `deadline`, but at least `NOTE_LOCK_TIMEOUT` from now.
pub(super) fn note_lock_timeout(deadline: Deadline) -> Deadline {
    SystemClock.deadline(SystemClock.remaining(deadline).max(NOTE_LOCK_TIMEOUT))
}
