//! A loaded skill: its metadata; body and resources are read on demand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::name::SkillName;

/// A loaded skill.
#[derive(Debug, Clone)]
pub struct Skill {
    name: SkillName,
    description: String,
    location: PathBuf,
    root_dir: PathBuf,
    metadata: BTreeMap<String, String>,
}

impl Skill {
    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &SkillName {
        &self.name
    }

    /// What it does and when to use it.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The absolute, resolved path of its `SKILL.md`.
    #[must_use]
    pub fn location(&self) -> &Path {
        &self.location
    }

    /// The absolute, resolved folder of its `SKILL.md`.
    #[must_use]
    pub fn root_dir(&self) -> &Path {
        &self.root_dir
    }

    /// Additional properties.
    #[must_use]
    pub const fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }
}
