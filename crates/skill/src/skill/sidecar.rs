//! The manifest beside a `SKILL.md`.

use std::path::Path;

use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::error::SkillError;
use crate::files::{Folder, open_direct};
use crate::frontmatter::{Frontmatter, unix_lines};
use crate::manifest::{MAX_MANIFEST_BYTES, Manifest, ParsedManifest, SIDECAR_FILE};
use crate::skill::text;

/// Reads it, if there is one. That there is none costs one look.
pub(super) fn read(root_dir: &Path, frontmatter: &Frontmatter) -> Result<ParsedManifest, SkillError> {
    let path = root_dir.join(SIDECAR_FILE);
    let opened = match open_direct(&path) {
        // It may be a link within the skill.
        Err(SkillError::PathNotAllowed { .. }) => {
            Folder::open(root_dir).and_then(|folder| folder.open_file(Path::new(SIDECAR_FILE)))
        }
        other => other,
    };
    let mut file = match opened {
        Err(SkillError::FileNotFound { .. }) => return Ok(ParsedManifest::default()),
        other => other?,
    };
    let refused = |findings| SkillError::from_findings(path.clone(), findings);
    if frontmatter.manifest().is_some() {
        let message = format!(
            "there is a manifest in the frontmatter of SKILL.md too: keep one of them, and `{SIDECAR_FILE}` if the skill is \
             to be valid strictly"
        );
        return Err(refused(vec![Diagnostic::new(RuleId::ManifestTwice, Severity::Error, message, "")]));
    }
    let bytes = file.read_all(MAX_MANIFEST_BYTES)?;
    let content = text(&bytes, SIDECAR_FILE).map_err(|finding| {
        let message = finding.message();
        refused(vec![Diagnostic::new(RuleId::ManifestSyntax, Severity::Error, message, "")])
    })?;
    let parsed = Manifest::parse(&unix_lines(content)).map_err(|error| refused(error.into_diagnostics()))?;
    let diagnostics = parsed.diagnostics.into_iter().map(|finding| finding.in_file(&path)).collect();
    Ok(ParsedManifest { diagnostics, ..parsed })
}
