//! An immutable snapshot of skills.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::skill::Skill;

/// An immutable snapshot: name to skill, in the order of names.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    skills: BTreeMap<String, Arc<Skill>>,
}

impl Catalog {
    /// A catalog of these skills; of two with the same name the first stays.
    #[must_use]
    pub fn new(skills: impl IntoIterator<Item = Skill>) -> Self {
        let mut map = BTreeMap::new();
        for skill in skills {
            map.entry(skill.name().as_str().to_owned()).or_insert_with(|| Arc::new(skill));
        }
        Self { skills: map }
    }

    /// The skill of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Skill>> {
        self.skills.get(name)
    }

    /// All skills, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Skill>> {
        self.skills.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.skills.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }
}
