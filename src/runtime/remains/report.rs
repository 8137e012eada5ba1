//! What a deletion tells of what it could not delete at once.

use std::fmt;

use conjure_base::SessionId;

/// What became of a deletion here: nothing is left here. What it tells of lies elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deletion {
    /// What lies at models' services yet. It is noted, and deleted there in the background, where it is known; see
    /// [`LeftAtService::files`].
    pub left: Vec<LeftAtService>,
    /// Skills that were uploaded under the own key of a deleted tenant, and are at the service yet.
    pub skills: Vec<SkillsAtService>,
}

/// Skills that were uploaded under the own key of a deleted tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SkillsAtService {
    /// The address of the service.
    pub service: String,
    /// Their ids. Empty: which they are is not known.
    pub skills: Vec<String>,
    /// Whether they will go.
    pub fate: SkillFate,
    /// Why they are there yet.
    pub reason: String,
}

/// What becomes of skills that a deletion left at a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillFate {
    /// They are deleted in the background.
    Later,
    /// They stay.
    Stay,
}

/// Files of a deleted session that lie at its model's service yet: artifacts that it was given, and what the service's tools made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftAtService {
    /// Whose they were.
    pub session: SessionId,
    /// The session's model, by name, where it had one of a name.
    pub model: Option<String>,
    /// The address of the service; `None`: the model was not known to this runtime.
    pub service: Option<String>,
    /// Their ids. Empty: which they are is not known, or not of all, as the session's record could not be read, or was written to until
    /// it was deleted, or what was noted cannot be read; nothing may ever delete them.
    pub files: Vec<String>,
    /// Why they are there yet.
    pub reason: String,
}

impl Deletion {
    /// Whether nothing is left anywhere, as far as is known.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.left.is_empty() && self.skills.is_empty()
    }
}

impl fmt::Display for LeftAtService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = self.service.as_deref().unwrap_or("its model's service");
        match self.files.len() {
            0 => write!(f, "files of {} may be left at {service}: {}", self.session, self.reason),
            1 => write!(f, "1 file of {} is left at {service}: {}", self.session, self.reason),
            count => write!(f, "{count} files of {} are left at {service}: {}", self.session, self.reason),
        }
    }
}
