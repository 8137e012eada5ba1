//! What a host chooses about the prompt.

use std::path::PathBuf;

use crate::locations::Locations;

/// How the model gets at a skill's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ActivationStyle {
    /// It reads `SKILL.md` with the `view` tool.
    #[default]
    View,
}

/// What a host chooses about the prompt.
#[derive(Debug, Clone, Default)]
pub struct PromptOptions {
    /// How the model gets at a skill's instructions.
    pub style: ActivationStyle,
    /// Where the model finds each skill.
    pub locations: Locations,
    /// The workspace's path as the sandbox has it; `None`: the model is not told of one.
    pub workspace: Option<PathBuf>,
}
