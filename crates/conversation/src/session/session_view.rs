//! The part of a session's state that its prompt and its tools depend on: active skills, grants and artifacts.
//!
//! Only recorded events change it. It is passed by value, so the composer and each tool call see a consistent snapshot.

use std::sync::Arc;

use crate::session::artifact::{Artifact, ArtifactName, FetchedArtifact, free_variable};
use crate::session::grant::{Grant, GrantScope};
use crate::session::pinned_skill::PinnedSkill;

/// A snapshot of a session's active skills, grants and artifacts. Clones share their data.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionView {
    active: Arc<[PinnedSkill]>,
    /// The skills that were active when the last response arrived. Its calls are authorised by these.
    active_at_response: Arc<[PinnedSkill]>,
    grants: Arc<[Grant]>,
    /// Each has its own `Arc`, so a change of one copies no other.
    artifacts: Arc<[Arc<Artifact>]>,
}

/// No active skills, no grants, no artifacts. It does not allocate.
impl Default for SessionView {
    fn default() -> Self {
        Self {
            active: Arc::default(),
            active_at_response: Arc::default(),
            grants: Arc::default(),
            artifacts: Arc::default(),
        }
    }
}

impl SessionView {
    /// A view with these active skills, the most recent last.
    #[must_use]
    pub fn with_active_skills(active: impl Into<Arc<[PinnedSkill]>>) -> Self {
        let active = active.into();
        Self { active_at_response: Arc::clone(&active), active, ..Self::default() }
    }

    /// Sets the grants.
    #[must_use]
    pub fn with_grants(self, grants: impl Into<Arc<[Grant]>>) -> Self {
        Self { grants: grants.into(), ..self }
    }

    /// The active skills, the most recently loaded last.
    #[must_use]
    pub fn active_skills(&self) -> &[PinnedSkill] {
        &self.active
    }

    /// The skills that were active when the last response arrived, before any of its calls ran.
    ///
    /// All calls of a response are authorised by these. If one of the calls loads or unloads a skill, only [`Self::active_skills`]
    /// shows it.
    #[must_use]
    pub fn skills_at_response(&self) -> &[PinnedSkill] {
        &self.active_at_response
    }

    /// The active skill of this name.
    #[must_use]
    pub fn active_skill(&self, name: &str) -> Option<&PinnedSkill> {
        self.active.iter().find(|skill| skill.name == name)
    }

    /// The grants that are in force. A grant of a skill that is inactive, or has other content now, is not among them.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(|grant| match &grant.scope {
            GrantScope::Session => true,
            GrantScope::Skill(skill) => self.active.contains(skill),
        })
    }

    /// Sets the artifacts.
    #[must_use]
    pub fn with_artifacts(self, artifacts: impl IntoIterator<Item = impl Into<Arc<Artifact>>>) -> Self {
        Self { artifacts: artifacts.into_iter().map(Into::into).collect(), ..self }
    }

    /// The artifacts, in the order of their registration.
    #[must_use]
    pub const fn artifacts(&self) -> &Arc<[Arc<Artifact>]> {
        &self.artifacts
    }

    /// The artifact of this name.
    #[must_use]
    pub fn artifact(&self, name: &ArtifactName) -> Option<&Arc<Artifact>> {
        self.artifacts.iter().find(|artifact| artifact.name == *name)
    }

    pub(crate) fn add_artifact(&mut self, artifact: &Artifact) {
        let variable = free_variable(&artifact.name, &self.artifacts);
        let artifact = Arc::new(Artifact { variable, ..artifact.clone() });
        self.artifacts = self.artifacts.iter().cloned().chain([artifact]).collect();
    }

    pub(crate) fn remove_artifact(&mut self, name: &ArtifactName) {
        self.artifacts = self.artifacts.iter().filter(|artifact| artifact.name != *name).cloned().collect();
    }

    pub(crate) fn update_fetched(&mut self, fetched: &FetchedArtifact) {
        if self.artifact(&fetched.name).is_some() {
            let mut artifacts = self.artifacts.to_vec();
            artifacts
                .iter_mut()
                .filter(|artifact| artifact.name == fetched.name)
                .for_each(|artifact| Arc::make_mut(artifact).update_fetched(fetched));
            self.artifacts = artifacts.into();
        }
    }

    /// Records that a response arrived: its calls are authorised by the skills that are active now.
    pub(crate) fn record_response(&mut self) {
        self.active_at_response = Arc::clone(&self.active);
    }

    pub(crate) fn set_active_skills(&mut self, active: &[PinnedSkill]) {
        if *self.active != *active {
            self.active = active.into();
            // A grant holds for one content of a skill. Another content of the same name starts without grants.
            let is_revoked = |grant: &Grant| match &grant.scope {
                GrantScope::Session => false,
                GrantScope::Skill(skill) => {
                    active.iter().any(|other| other.name == skill.name && other.digest != skill.digest)
                }
            };
            if self.grants.iter().any(is_revoked) {
                self.grants = self.grants.iter().filter(|grant| !is_revoked(grant)).cloned().collect();
            }
        }
    }

    pub(crate) fn add_grant(&mut self, grant: &Grant) {
        if !self.grants.contains(grant) {
            self.grants = self.grants.iter().chain([grant]).cloned().collect();
        }
    }
}
