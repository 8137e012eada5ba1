//! The plan, the events and the report of a push.

use std::path::{Path, PathBuf};

use conjure_skill::Diagnostic;

use crate::hosted::sync::local_skills::UploadCandidate;
use crate::hosted::sync::{SkillFailure, SyncError};
use crate::hosted::{Progress, SkillId, VersionId};

/// The plan of a push.
#[derive(Debug)]
#[non_exhaustive]
pub struct SyncPlan {
    /// The skills of the directory, sorted by name.
    pub skills: Vec<PlannedSkill>,
    /// Uploaded skills that are missing in the directory now, sorted by name. A push leaves them at the service.
    pub absent: Vec<MissingLocally>,
    /// Warnings about the directory.
    pub notes: Vec<Diagnostic>,
    pub(super) dir: String,
    /// Index entries of skills that the service no longer has.
    pub(super) missing_remotely: Vec<SkillId>,
}

/// The plan for one skill.
#[derive(Debug)]
pub struct PlannedSkill {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) step: Result<PlannedAction, SkillFailure>,
    pub(super) candidate: Option<UploadCandidate>,
}

/// The planned action for a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannedAction {
    /// Upload it as a new skill.
    Create,
    /// Upload it as a new version.
    Update {
        /// The skill at the service.
        skill: SkillId,
    },
    /// Do nothing: the service has the same files.
    Keep {
        /// The skill at the service.
        skill: SkillId,
        /// The version.
        version: VersionId,
    },
}

/// An uploaded skill that is missing in the directory: removed or renamed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingLocally {
    /// Its name.
    pub name: String,
    /// The skill at the service.
    pub skill: SkillId,
}

/// The report of a push.
#[derive(Debug)]
#[non_exhaustive]
pub struct SyncReport {
    /// The skills of the directory, sorted by name.
    pub skills: Vec<SyncedSkill>,
    /// As in the [plan](SyncPlan::absent).
    pub absent: Vec<MissingLocally>,
    /// As in the [plan](SyncPlan::notes).
    pub notes: Vec<Diagnostic>,
    /// The first error that occurred while writing the index, if any. The next push then finds the uploads by comparing.
    pub record_error: Option<SyncError>,
}

/// The result of a push for one skill.
#[derive(Debug)]
pub struct SyncedSkill {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) result: Result<PushResult, SkillFailure>,
}

/// The result of pushing a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushResult {
    /// A new skill was created.
    Created {
        /// The skill.
        skill: SkillId,
        /// The version, if known.
        version: Option<VersionId>,
    },
    /// A new version was created.
    Updated {
        /// The skill.
        skill: SkillId,
        /// The version.
        version: VersionId,
    },
    /// The service had the same files.
    Unchanged {
        /// The skill.
        skill: SkillId,
        /// The version.
        version: VersionId,
    },
}

/// An event of a push.
#[derive(Debug)]
#[non_exhaustive]
pub enum SyncEvent<'a> {
    /// The plan is complete.
    Planned(&'a SyncPlan),
    /// An upload has started.
    Started {
        /// Its name.
        name: &'a str,
        /// The size of its files, in bytes.
        bytes: u64,
    },
    /// A piece of an upload was passed to the connection.
    Uploaded {
        /// Its name.
        name: &'a str,
        /// The progress.
        progress: Progress,
    },
    /// A push of a skill has finished or failed.
    Finished(&'a SyncedSkill),
}

impl PlannedSkill {
    /// The skill's name; for an invalid skill, the directory's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path of its `SKILL.md` or package.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The planned action.
    ///
    /// # Errors
    /// The reason why the skill cannot be pushed.
    pub const fn step(&self) -> Result<&PlannedAction, &SkillFailure> {
        self.step.as_ref()
    }
}

impl SyncedSkill {
    /// The skill's name; for an invalid skill, the directory's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path of its `SKILL.md` or package.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The result of pushing a skill.
    ///
    /// # Errors
    /// The reason why the skill was not pushed.
    pub const fn result(&self) -> Result<&PushResult, &SkillFailure> {
        self.result.as_ref()
    }
}

impl SyncPlan {
    /// Whether every skill can be pushed.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.skills.iter().all(|skill| skill.step.is_ok())
    }
}

impl SyncReport {
    /// Whether every skill is synchronised and the index is up to date.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.record_error.is_none() && self.skills.iter().all(|skill| skill.result.is_ok())
    }
}

impl PushResult {
    /// The skill at the service.
    #[must_use]
    pub const fn skill(&self) -> &SkillId {
        match self {
            Self::Created { skill, .. } | Self::Updated { skill, .. } | Self::Unchanged { skill, .. } => {
                skill
            }
        }
    }

    /// Its newest version, if known.
    #[must_use]
    pub const fn version(&self) -> Option<&VersionId> {
        match self {
            Self::Created { version, .. } => version.as_ref(),
            Self::Updated { version, .. } | Self::Unchanged { version, .. } => Some(version),
        }
    }
}
