//! Reading a manifest: a text becomes a [`Manifest`], or findings that say what to mend.

mod fields;
mod reader;

use std::sync::Arc;

use fields::Fields;
use reader::Reader;

use super::version::{CURRENT, ManifestVersion};
use super::{ManifestError, ParsedManifest};
use crate::diagnostic::{Diagnostic, Position, RuleId, Severity};
use crate::yaml::{self, Mark, Repairing};

/// The fields of a manifest.
const FIELDS: [&str; 8] =
    ["manifest_version", "version", "inputs", "env", "preconditions", "outputs", "execution", "sensitive"];

/// The field without which a manifest is one of another time, or of somebody else.
const VERSION: &str = "manifest_version";

/// Where a manifest was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Between the fences of a `SKILL.md`, among fields of the format; in which line the first fence is.
    Frontmatter { fence_line: u32 },
    /// In a file of its own.
    Sidecar,
}

impl Origin {
    fn position(self, mark: Mark) -> Position {
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

/// Whether a field of a frontmatter says that there is a manifest.
pub(crate) fn declares_manifest(name: &str) -> bool {
    name == VERSION
}

/// Reads a manifest.
pub(crate) fn read(text: &str, origin: Origin) -> Result<ParsedManifest, ManifestError> {
    let mut reader = Reader::new(text, origin);
    // A frontmatter may be written as people write them; a file that is a manifest and nothing else is YAML.
    let repairing = match origin {
        Origin::Frontmatter { .. } => Repairing::Yes,
        Origin::Sidecar => Repairing::No,
    };
    let value = match yaml::read_typed(text, repairing) {
        Ok(value) => reader.json(&value),
        Err(error) => {
            reader.add_at(RuleId::ManifestSyntax, Severity::Error, error.message, error.mark);
            None
        }
    };
    let Some(value) = value else {
        return Err(ManifestError::Invalid { diagnostics: reader.into_findings() });
    };
    let mut fields = Fields::of(&mut reader, &value);
    let version = match fields.manifest_version() {
        Declared::Legacy => {
            let severity = if origin == Origin::Sidecar { Severity::Warning } else { Severity::Info };
            let message = "there is no `manifest_version`, so the fields of the manifest are not looked at: write \
                           `manifest_version: \"1.0\"` to have them checked";
            fields.reader().add(RuleId::ManifestLegacy, severity, message.to_owned());
            return Ok(ParsedManifest { manifest: None, diagnostics: reader.into_findings() });
        }
        Declared::Unreadable => return Err(ManifestError::Invalid { diagnostics: reader.into_findings() }),
        Declared::Version(found) if found.major != CURRENT.major => {
            let message = format!(
                "manifest_version {found} is not supported: this program reads versions {}.x",
                CURRENT.major
            );
            fields.reader().within_key(VERSION, |reader| {
                reader.add(RuleId::ManifestVersion, Severity::Error, message);
            });
            return Err(ManifestError::Unsupported { found, diagnostics: reader.into_findings() });
        }
        Declared::Version(version) => version,
    };
    if version > CURRENT {
        let message = format!(
            "manifest_version {version} is newer than {CURRENT}: fields that came since are not looked at"
        );
        fields.reader().within_key(VERSION, |reader| {
            reader.add(RuleId::ManifestVersion, Severity::Warning, message);
        });
    }
    let manifest = fields.manifest(version);
    let findings = reader.into_findings();
    if findings.iter().any(Diagnostic::is_error) {
        return Err(ManifestError::Invalid { diagnostics: findings });
    }
    Ok(ParsedManifest { manifest: Some(Arc::new(manifest)), diagnostics: findings })
}

/// What a manifest says of its version.
pub(super) enum Declared {
    Legacy,
    Unreadable,
    Version(ManifestVersion),
}
