//! The manifest of a skill: its requirements, inputs, outputs and behaviour.
//!
//! A manifest is part of the frontmatter, or, to follow the format strictly, in the file [`SIDECAR_FILE`] beside
//! `SKILL.md`. A [`Manifest`] is validated: no path leads out of its base, all schemas are valid, and input names
//! are unique. It holds only what the author declares; [preflight](crate::Preflight) checks whether it is true. It
//! grants a skill no permission.
//!
//! Pure values.

mod definition;
mod input;
mod locate;
mod output;
mod path;
mod precondition;
mod read;

pub use definition::{
    Destructive, Execution, MAX_MANIFEST_BYTES, Manifest, ManifestError, ManifestVersion, ParsedManifest,
    SIDECAR_FILE,
};
pub use input::{EnvVariable, Input, Requirement, input_text, input_variable};
pub use output::{OutputArtifact, OutputFile, OutputPattern, OutputPatternError};
pub use path::{PathBase, PathProblem};
pub use precondition::{RequiredCommand, RequiredFile};
pub(crate) use read::{ManifestOrigin, declares_manifest, is_manifest_field, read};

#[cfg(test)]
mod tests;
