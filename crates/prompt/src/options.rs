//! The embedder's options for the prompt.

use std::path::PathBuf;

use conjure_conversation::{SkillActivation, SkillDelivery};

use crate::artifact_section::ArtifactPrompt;
use crate::skill_locations::SkillLocations;

/// The embedder's options for the prompt.
#[derive(Debug, Clone)]
pub struct PromptOptions {
    /// How the model reads a skill's instructions.
    pub activation: SkillActivation,
    /// Where the instructions of a loaded skill are delivered. Used only with [`SkillActivation::Load`].
    pub delivery: SkillDelivery,
    /// Where the model finds each skill.
    pub locations: SkillLocations,
    /// The sandbox path of the workspace; `None` to leave it out.
    pub workspace: Option<PathBuf>,
    /// Reference features of the session's tools; `None` to leave artifacts out.
    pub artifacts: Option<ArtifactPrompt>,
}

/// Skills are read with `view`, at this machine's own paths, without workspace and artifacts.
///
/// These defaults suit a prompt without a session, used with the four built-in tools ([`crate::tool_definitions`]). Without a
/// session, nothing records which skills are loaded.
impl Default for PromptOptions {
    fn default() -> Self {
        Self {
            activation: SkillActivation::View,
            delivery: SkillDelivery::default(),
            locations: SkillLocations::default(),
            workspace: None,
            artifacts: None,
        }
    }
}
