//! The skills of a session, as its prompt and its tools need them: found by name or by place, each with its digest, and its
//! instructions read once.
//!
//! State: what was read of each skill, in memory; lost with it and read again. The folders are those of pinned skills, which nobody
//! changes, so reading late is reading the same.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use conjure_base::Digest;
use conjure_conversation::PinnedSkill;
use conjure_skill::{Skill, SkillError};

use crate::locations::Locations;

/// A skill that a session may load.
#[derive(Debug)]
pub struct SessionSkill {
    skill: Arc<Skill>,
    digest: OnceLock<Digest>,
    body: OnceLock<Arc<str>>,
    files: OnceLock<Box<[PathBuf]>>,
}

impl SessionSkill {
    /// A skill whose content is known by this digest.
    #[must_use]
    pub fn pinned(skill: Arc<Skill>, digest: Digest) -> Self {
        Self { skill, digest: digest.into(), body: OnceLock::new(), files: OnceLock::new() }
    }

    /// A skill that is digested when it is first loaded.
    #[must_use]
    pub fn of(skill: Arc<Skill>) -> Self {
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

    /// Its name and digest, as sessions record it. Reads the skill where it is not known yet; blocks then.
    ///
    /// # Errors
    /// When the skill cannot be read.
    pub fn pin(&self) -> Result<PinnedSkill, SkillError> {
        let digest = match self.digest.get() {
            Some(digest) => *digest,
            None => {
                let digest = self.skill.digest()?;
                *self.digest.get_or_init(|| digest)
            }
        };
        Ok(PinnedSkill { name: self.name().to_owned(), digest })
    }

    /// Whether this is what a session recorded, as far as that is known.
    fn is(&self, pinned: &PinnedSkill) -> bool {
        self.name() == pinned.name && self.digest.get().is_none_or(|digest| *digest == pinned.digest)
    }

    /// Its instructions, read once. Blocks the first time.
    ///
    /// # Errors
    /// When they cannot be read. The next call tries again.
    pub fn body(&self) -> Result<Arc<str>, SkillError> {
        if let Some(body) = self.body.get() {
            return Ok(Arc::clone(body));
        }
        let body: Arc<str> = self.skill.body()?.into();
        Ok(Arc::clone(self.body.get_or_init(|| body)))
    }

    /// The paths of its files beside its `SKILL.md`, relative to its folder, in a stable order; listed once. Blocks the first time.
    /// Where they cannot be listed there are none, and that is logged.
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

/// The skills that a session may load, in the order in which the model is told of them. Clones share.
#[derive(Debug, Clone, Default)]
pub struct SessionSkills {
    skills: Arc<[Arc<SessionSkill>]>,
    locations: Locations,
}

impl SessionSkills {
    /// These skills, which the model finds so. Of two with one name the first stays.
    #[must_use]
    pub fn new(skills: impl IntoIterator<Item = Arc<SessionSkill>>, locations: Locations) -> Self {
        let mut unique: Vec<Arc<SessionSkill>> = Vec::new();
        for skill in skills {
            if unique.iter().all(|other| other.name() != skill.name()) {
                unique.push(skill);
            }
        }
        Self { skills: unique.into(), locations }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<SessionSkill>> {
        self.skills.iter()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }

    /// The skill of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<SessionSkill>> {
        self.skills.iter().find(|skill| skill.name() == name)
    }

    /// The skill that a session recorded as active, if it is still of that content.
    #[must_use]
    pub fn recorded(&self, pinned: &PinnedSkill) -> Option<&Arc<SessionSkill>> {
        self.skills.iter().find(|skill| skill.is(pinned))
    }

    /// The skill of this name, or whose `SKILL.md` or folder the model finds there.
    #[must_use]
    pub fn find(&self, name_or_location: &str) -> Option<&Arc<SessionSkill>> {
        let path = Path::new(name_or_location);
        let lies_there = |skill: &&Arc<SessionSkill>| {
            path.is_absolute()
                && [self.location(skill), self.root_dir(skill)].iter().flatten().any(|place| place == path)
        };
        self.get(name_or_location).or_else(|| self.skills.iter().find(lies_there))
    }

    /// Where the model finds a skill's `SKILL.md`, if it does.
    #[must_use]
    pub fn location(&self, skill: &SessionSkill) -> Option<PathBuf> {
        self.locations.of(skill.skill.location())
    }

    /// Where the model finds a skill's folder, if it does.
    #[must_use]
    pub fn root_dir(&self, skill: &SessionSkill) -> Option<PathBuf> {
        self.locations.of(skill.skill.root_dir())
    }
}
