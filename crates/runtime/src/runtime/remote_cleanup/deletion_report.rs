//! The report of a deletion: what remains at services.

use std::fmt;

use conjure_base::SessionId;

/// The report of a deletion: what remains at services. Nothing is left on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeletionReport {
    /// Files that remain at models' services. A note names those that are known, and the janitor deletes them; see
    /// [`RemainingFiles::files`].
    pub files: Vec<RemainingFiles>,
    /// Skills that remain at a service. They were uploaded under the deleted tenant's own key.
    pub skills: Vec<RemainingSkills>,
}

/// Skills of a deleted tenant that remain at a service. They were uploaded under the tenant's own key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemainingSkills {
    /// The address of the service.
    pub service: String,
    /// The ids. Empty if they are not known.
    pub skills: Vec<String>,
    /// Whether they will be deleted.
    pub outcome: RemoteSkillOutcome,
    /// Why they remain.
    pub reason: String,
}

/// What happens to skills that remain after a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteSkillOutcome {
    /// The janitor deletes them in the background.
    DeletedLater,
    /// They are not deleted.
    Kept,
}

/// Files of a deleted session that remain at its model's service: uploaded artifacts, and files that the service's
/// tools produced.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemainingFiles {
    /// The session.
    pub session: SessionId,
    /// The name of the session's model, if it had one.
    pub model: Option<String>,
    /// The address of the service. `None` if this runtime did not know the model.
    pub service: Option<String>,
    /// The ids. Empty if not all of them are known. Such files may never be deleted. The reasons can be:
    ///
    /// - The session's record or the note could not be read.
    /// - The session recorded events until its deletion.
    pub files: Vec<String>,
    /// Why they remain.
    pub reason: String,
}

impl DeletionReport {
    /// Whether nothing remains, as far as is known.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.files.is_empty() && self.skills.is_empty()
    }
}

impl fmt::Display for RemainingFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = self.service.as_deref().unwrap_or("its model's service");
        match self.files.len() {
            0 => write!(f, "files of {} may be left at {service}: {}", self.session, self.reason),
            1 => write!(f, "1 file of {} is left at {service}: {}", self.session, self.reason),
            count => write!(f, "{count} files of {} are left at {service}: {}", self.session, self.reason),
        }
    }
}
