//! What of a session's state counts for its instructions and its tools: which skills are active, what was granted for longer than
//! one call, and which artifacts there are.
//!
//! It is changed by recorded events alone, and handed out by value: whoever composes a request or runs a call sees one moment of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::artifact::{Artifact, ArtifactName, FetchedArtifact, free_variable};
use crate::profile::PinnedSkill;

/// The active skills of a session, its grants, and its artifacts. Clones share.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    active: Arc<[PinnedSkill]>,
    /// Those that were active when the answer came whose calls are judged and run.
    answered: Arc<[PinnedSkill]>,
    grants: Arc<[Grant]>,
    /// Each by itself: a change of one copies no other.
    artifacts: Arc<[Arc<Artifact>]>,
}

/// No skill is active, nothing is granted. No allocation: sessions without either share nothing.
impl Default for Standing {
    fn default() -> Self {
        Self {
            active: Arc::default(),
            answered: Arc::default(),
            grants: Arc::default(),
            artifacts: Arc::default(),
        }
    }
}

impl Standing {
    /// These skills are active, the most recent last.
    #[must_use]
    pub fn with_active(active: impl Into<Arc<[PinnedSkill]>>) -> Self {
        let active = active.into();
        Self { answered: Arc::clone(&active), active, ..Self::default() }
    }

    /// The same with these grants.
    #[must_use]
    pub fn granting(self, grants: impl Into<Arc<[Grant]>>) -> Self {
        Self { grants: grants.into(), ..self }
    }

    /// The active skills, the most recently loaded last.
    #[must_use]
    pub fn active_skills(&self) -> &[PinnedSkill] {
        &self.active
    }

    /// The skills that were active when the model's last answer came, before any call of it ran. All calls of an answer are judged
    /// by these; what an earlier one of them loads or unloads is seen in [`Self::active_skills`] alone.
    #[must_use]
    pub fn answered_with(&self) -> &[PinnedSkill] {
        &self.answered
    }

    /// The active skill of this name.
    #[must_use]
    pub fn active_skill(&self, name: &str) -> Option<&PinnedSkill> {
        self.active.iter().find(|skill| skill.name == name)
    }

    /// What was granted and still holds: a grant of a skill that is not active, or is of another content now, is not among it.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(|grant| match &grant.scope {
            GrantScope::Session => true,
            GrantScope::Skill(skill) => self.active.contains(skill),
        })
    }

    /// The same with these artifacts.
    #[must_use]
    pub fn with_artifacts(self, artifacts: impl IntoIterator<Item = impl Into<Arc<Artifact>>>) -> Self {
        Self { artifacts: artifacts.into_iter().map(Into::into).collect(), ..self }
    }

    /// The artifacts, in the order in which they were registered. Clones share.
    #[must_use]
    pub const fn artifacts(&self) -> &Arc<[Arc<Artifact>]> {
        &self.artifacts
    }

    /// The artifact of this name.
    #[must_use]
    pub fn artifact(&self, name: &ArtifactName) -> Option<&Arc<Artifact>> {
        self.artifacts.iter().find(|artifact| artifact.name == *name)
    }

    pub(crate) fn register(&mut self, artifact: &Artifact) {
        let variable = free_variable(&artifact.name, &self.artifacts);
        let artifact = Arc::new(Artifact { variable, ..artifact.clone() });
        self.artifacts = self.artifacts.iter().cloned().chain([artifact]).collect();
    }

    pub(crate) fn unregister(&mut self, name: &ArtifactName) {
        self.artifacts = self.artifacts.iter().filter(|artifact| artifact.name != *name).cloned().collect();
    }

    pub(crate) fn fetched(&mut self, fetched: &FetchedArtifact) {
        if self.artifact(&fetched.name).is_some() {
            let mut artifacts = self.artifacts.to_vec();
            artifacts
                .iter_mut()
                .filter(|artifact| artifact.name == fetched.name)
                .for_each(|artifact| Arc::make_mut(artifact).fetched(fetched));
            self.artifacts = artifacts.into();
        }
    }

    /// An answer has come: its calls are judged by what is active now.
    pub(crate) fn answer(&mut self) {
        self.answered = Arc::clone(&self.active);
    }

    pub(crate) fn activate(&mut self, active: &[PinnedSkill]) {
        if *self.active != *active {
            self.active = active.into();
            // A grant holds for one content. Another one of the same name, should it ever come, begins without.
            let gone = |grant: &Grant| match &grant.scope {
                GrantScope::Session => false,
                GrantScope::Skill(skill) => {
                    active.iter().any(|other| other.name == skill.name && other.digest != skill.digest)
                }
            };
            if self.grants.iter().any(gone) {
                self.grants = self.grants.iter().filter(|grant| !gone(grant)).cloned().collect();
            }
        }
    }

    pub(crate) fn grant(&mut self, grant: &Grant) {
        if !self.grants.contains(grant) {
            self.grants = self.grants.iter().chain([grant]).cloned().collect();
        }
    }
}

/// What a person allowed for more than one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Which calls, in the grammar of a skill's `allowed-tools`: `view`, or `bash_tool(git:*)`.
    pub rule: String,
    /// For how long.
    pub scope: GrantScope,
}

/// For how long a grant holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GrantScope {
    /// As long as the session is there.
    Session,
    /// While this skill is active, with this content.
    Skill(PinnedSkill),
}
