//! What a host chooses about the prompt.

use std::path::PathBuf;

use conjure_conversation::{Activation, Delivery};

use crate::artifacts::ArtifactPrompt;
use crate::locations::Locations;

/// What a host chooses about the prompt.
#[derive(Debug, Clone)]
pub struct PromptOptions {
    /// How the model gets at a skill's instructions.
    pub activation: Activation,
    /// Where the instructions of a loaded skill stand. It counts under [`Activation::Load`] alone.
    pub delivery: Delivery,
    /// Where the model finds each skill.
    pub locations: Locations,
    /// The workspace's path as the sandbox has it; `None`: the model is not told of one.
    pub workspace: Option<PathBuf>,
    /// What is true of references in the session's tools; `None`: the model is told of no artifacts.
    pub artifacts: Option<ArtifactPrompt>,
}

/// Skills are read with `view`, since a prompt by itself goes with the four built-in tools ([`crate::tool_definitions`]) and no
/// session remembers what is loaded; locations are the host's, and neither a workspace nor artifacts are
/// told.
impl Default for PromptOptions {
    fn default() -> Self {
        Self {
            activation: Activation::View,
            delivery: Delivery::default(),
            locations: Locations::default(),
            workspace: None,
            artifacts: None,
        }
    }
}
