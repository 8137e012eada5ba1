//! The skills of a session, for its prompt and its tools: lookup by name or location, digests, and cached instructions.
//!
//! State: the instructions, file lists and digests of skills, in memory. They are read again after a crash. Pinned skills never
//! change, so a late read gives the same result.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use conjure_base::Digest;
use conjure_conversation::PinnedSkill;
use conjure_skill::{Skill, SkillError};

use crate::skill_locations::SkillLocations;

/// A skill that a session may load.
#[derive(Debug)]
pub struct SessionSkill {
    skill: Arc<Skill>,
    digest: OnceLock<Digest>,
    body: OnceLock<Arc<str>>,
    files: OnceLock<Box<[PathBuf]>>,
}

impl SessionSkill {
    /// A skill with a known digest.
    #[must_use]
    pub fn pinned(skill: Arc<Skill>, digest: Digest) -> Self {
        Self { skill, digest: digest.into(), body: OnceLock::new(), files: OnceLock::new() }
    }

    /// A skill that is digested when it is first loaded.
    #[must_use]
    pub fn from_skill(skill: Arc<Skill>) -> Self {
        Self { skill, digest: OnceLock::new(), body: OnceLock::new(), files: OnceLock::new() }
    }

    /// The skill.
    #[must_use]
    pub const fn skill(&self) -> &Arc<Skill> {
        &self.skill
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.skill.name().as_str()
    }

    /// Its name and digest, as sessions record them. Reads the skill and blocks if the digest is not known yet.
    ///
    /// # Errors
    /// When the skill cannot be read.
    pub fn pinned_ref(&self) -> Result<PinnedSkill, SkillError> {
        let digest = match self.digest.get() {
            Some(digest) => *digest,
            None => {
                let digest = self.skill.digest()?;
                *self.digest.get_or_init(|| digest)
            }
        };
        Ok(PinnedSkill { name: self.name().to_owned(), digest })
    }

    /// Whether this is the recorded skill. An unknown digest counts as equal.
    fn matches_pin(&self, pinned: &PinnedSkill) -> bool {
        self.name() == pinned.name && self.digest.get().is_none_or(|digest| *digest == pinned.digest)
    }

    /// Its instructions, read once. Blocks the first time.
    ///
    /// # Errors
    /// When they cannot be read. The next call retries.
    pub fn body(&self) -> Result<Arc<str>, SkillError> {
        if let Some(body) = self.body.get() {
            return Ok(Arc::clone(body));
        }
        let body: Arc<str> = self.skill.body()?.into();
        Ok(Arc::clone(self.body.get_or_init(|| body)))
    }

    /// The paths of its files except `SKILL.md`, relative to its directory, in a stable order. They are listed once; the first call
    /// blocks. If they cannot be listed, the result is empty, and the error is logged.
    pub fn files(&self) -> &[PathBuf] {
        self.files.get_or_init(|| match self.skill.resources() {
            Ok(resources) => resources.iter().map(|resource| resource.path().to_owned()).collect(),
            Err(error) => {
                tracing::warn!(skill = self.name(), %error, "the files of a skill cannot be listed");
                Box::default()
            }
        })
    }
}

/// The skills that a session may load, in the order of the prompt. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct SessionSkills {
    skills: Arc<[Arc<SessionSkill>]>,
    locations: SkillLocations,
}

impl SessionSkills {
    /// Creates the list of these skills at these locations. Of two skills with the same name, the first is kept.
    #[must_use]
    pub fn new(skills: impl IntoIterator<Item = Arc<SessionSkill>>, locations: SkillLocations) -> Self {
        let mut unique: Vec<Arc<SessionSkill>> = Vec::new();
        for skill in skills {
            if unique.iter().all(|other| other.name() != skill.name()) {
                unique.push(skill);
            }
        }
        Self { skills: unique.into(), locations }
    }

    /// All skills, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<SessionSkill>> {
        self.skills.iter()
    }

    /// Whether there are no skills.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }

    /// The skill with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<SessionSkill>> {
        self.skills.iter().find(|skill| skill.name() == name)
    }

    /// The skill that a session recorded as active, if its content is still the same.
    #[must_use]
    pub fn recorded(&self, pinned: &PinnedSkill) -> Option<&Arc<SessionSkill>> {
        self.skills.iter().find(|skill| skill.matches_pin(pinned))
    }

    /// The skill with this name, or with this location of its `SKILL.md` or directory.
    #[must_use]
    pub fn find(&self, name_or_location: &str) -> Option<&Arc<SessionSkill>> {
        let path = Path::new(name_or_location);
        let is_located_there = |skill: &&Arc<SessionSkill>| {
            path.is_absolute()
                && [self.location(skill), self.root_dir(skill)]
                    .iter()
                    .flatten()
                    .any(|location| location == path)
        };
        self.get(name_or_location).or_else(|| self.skills.iter().find(is_located_there))
    }

    /// The location of a skill's `SKILL.md`, if the model can reach it.
    #[must_use]
    pub fn location(&self, skill: &SessionSkill) -> Option<PathBuf> {
        self.locations.location_of(skill.skill.location())
    }

    /// The location of a skill's directory, if the model can reach it.
    #[must_use]
    pub fn root_dir(&self, skill: &SessionSkill) -> Option<PathBuf> {
        self.locations.location_of(skill.skill.root_dir())
    }
}
