//! Where a manifest was found, and which fields belong to it.

use crate::diagnostic::Position;
use crate::yaml::Mark;

/// The fields of a manifest.
pub(super) const FIELDS: [&str; 8] =
    ["manifest_version", "version", "inputs", "env", "preconditions", "outputs", "execution", "sensitive"];

/// The field that marks a manifest of this format.
pub(super) const VERSION: &str = "manifest_version";

/// Where a manifest was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ManifestOrigin {
    /// In the frontmatter of a `SKILL.md`. The value is the line of the first fence.
    Frontmatter { fence_line: u32 },
    /// In its own file.
    Sidecar,
}

impl ManifestOrigin {
    pub(super) fn position(self, mark: Mark) -> Position {
        match self {
            Self::Frontmatter { fence_line } => crate::frontmatter::position(mark, fence_line),
            Self::Sidecar => Position { line: mark.line, column: mark.column },
        }
    }
}

/// Whether a field of a frontmatter belongs to a manifest.
pub(crate) fn is_manifest_field(name: &str) -> bool {
    FIELDS.contains(&name)
}

/// Whether this field of a frontmatter marks a manifest.
pub(crate) fn declares_manifest(name: &str) -> bool {
    name == VERSION
}
