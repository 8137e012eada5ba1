//! What a push would do, what it does, and what it did.

use std::path::{Path, PathBuf};

use conjure_skill::Diagnostic;

use crate::hosted::sync::local::Ready;
use crate::hosted::sync::{SkillFailure, SyncError};
use crate::hosted::{Progress, SkillId, VersionId};

/// What a push would do.
#[derive(Debug)]
#[non_exhaustive]
pub struct SyncPlan {
    /// Each skill of the folder, by name.
    pub skills: Vec<PlannedSkill>,
    /// What came from this folder and is not there any more, by name. A push leaves it at the service.
    pub absent: Vec<Absent>,
    /// What is remarkable of the folder, and hinders nothing.
    pub notes: Vec<Diagnostic>,
    pub(super) folder: String,
    /// What is remembered and does not exist any more.
    pub(super) gone: Vec<SkillId>,
}

/// What a push would do with a skill.
#[derive(Debug)]
pub struct PlannedSkill {
    pub(super) name: String,
    pub(super) place: PathBuf,
    pub(super) step: Result<Step, SkillFailure>,
    pub(super) ready: Option<Ready>,
}

/// What is to be done with a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Upload it as a new one.
    Create,
    /// Upload it as another version.
    Update {
        /// Of this one.
        skill: SkillId,
    },
    /// Nothing: the service has it as it is here.
    Keep {
        /// As which.
        skill: SkillId,
        /// In which version.
        version: VersionId,
    },
}

/// A skill that came from the folder and is not there any more: removed, or renamed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Absent {
    /// The name that it had.
    pub name: String,
    /// Which it is at the service.
    pub skill: SkillId,
}

/// What a push did.
#[derive(Debug)]
#[non_exhaustive]
pub struct SyncReport {
    /// Each skill of the folder, by name.
    pub skills: Vec<SyncedSkill>,
    /// As in the [plan](SyncPlan::absent).
    pub absent: Vec<Absent>,
    /// As in the [plan](SyncPlan::notes).
    pub notes: Vec<Diagnostic>,
    /// Why not all of it was put down, where that is so. The next push finds by comparing what this one has uploaded.
    pub not_remembered: Option<SyncError>,
}

/// How a push ended for a skill.
#[derive(Debug)]
pub struct SyncedSkill {
    pub(super) name: String,
    pub(super) place: PathBuf,
    pub(super) result: Result<Pushed, SkillFailure>,
}

/// What the service has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pushed {
    /// A new skill.
    Created {
        /// Which.
        skill: SkillId,
        /// Its version, where the service told it.
        version: Option<VersionId>,
    },
    /// Another version.
    Updated {
        /// Of which.
        skill: SkillId,
        /// Which.
        version: VersionId,
    },
    /// What it had.
    Unchanged {
        /// Which.
        skill: SkillId,
        /// In which version.
        version: VersionId,
    },
}

/// What happens in a push, as it happens.
#[derive(Debug)]
#[non_exhaustive]
pub enum SyncEvent<'a> {
    /// The plan is made.
    Planned(&'a SyncPlan),
    /// A skill begins to be uploaded.
    Started {
        /// Its name.
        name: &'a str,
        /// Its files together, in bytes.
        bytes: u64,
    },
    /// A piece of it was handed to the connection.
    Sent {
        /// Its name.
        name: &'a str,
        /// How far it is.
        progress: Progress,
    },
    /// It is done, or has failed.
    Finished(&'a SyncedSkill),
}

impl PlannedSkill {
    /// The skill's name; of one that is not valid, that of its folder.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its `SKILL.md`, or its package.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// What would be done.
    ///
    /// # Errors
    /// Why nothing would.
    pub const fn step(&self) -> Result<&Step, &SkillFailure> {
        self.step.as_ref()
    }
}

impl SyncedSkill {
    /// The skill's name; of one that is not valid, that of its folder.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its `SKILL.md`, or its package.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// What the service has now.
    ///
    /// # Errors
    /// Why it is not what is here.
    pub const fn result(&self) -> Result<&Pushed, &SkillFailure> {
        self.result.as_ref()
    }
}

impl SyncPlan {
    /// Whether every skill of the folder can be brought in step.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.skills.iter().all(|skill| skill.step.is_ok())
    }
}

impl SyncReport {
    /// Whether every skill of the folder is in step, and all of it was put down.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.not_remembered.is_none() && self.skills.iter().all(|skill| skill.result.is_ok())
    }
}

impl Pushed {
    /// Which skill of the service.
    #[must_use]
    pub const fn skill(&self) -> &SkillId {
        match self {
            Self::Created { skill, .. } | Self::Updated { skill, .. } | Self::Unchanged { skill, .. } => {
                skill
            }
        }
    }

    /// Its newest version, where that is known.
    #[must_use]
    pub const fn version(&self) -> Option<&VersionId> {
        match self {
            Self::Created { version, .. } => version.as_ref(),
            Self::Updated { version, .. } | Self::Unchanged { version, .. } => Some(version),
        }
    }
}
