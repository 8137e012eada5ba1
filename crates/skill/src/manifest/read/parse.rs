//! Parses a manifest from text.

use std::sync::Arc;

use super::fields::{DeclaredVersion, Fields};
use super::origin::{ManifestOrigin, VERSION};
use super::reader::ValueReader;
use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::manifest::definition::{CURRENT, Manifest, ManifestError, ParsedManifest};
use crate::yaml::{self, RepairMode};

impl Manifest {
    /// Parses the text of a [`SIDECAR_FILE`](crate::SIDECAR_FILE). The findings have no path.
    ///
    /// ```
    /// use conjure_skill::Manifest;
    ///
    /// let parsed = Manifest::parse("manifest_version: \"1.0\"\nexecution:\n  timeout: 30\n")?;
    /// let manifest = parsed.manifest.ok_or("a manifest of no version")?;
    /// assert_eq!(manifest.execution().timeout.map(|timeout| timeout.as_secs()), Some(30));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When it is no YAML, too large, of an unknown major version, or breaks a rule.
    pub fn parse(text: &str) -> Result<ParsedManifest, ManifestError> {
        read(text, ManifestOrigin::Sidecar)
    }
}

/// Reads a manifest.
pub(crate) fn read(text: &str, origin: ManifestOrigin) -> Result<ParsedManifest, ManifestError> {
    let mut reader = ValueReader::new(text, origin);
    // A frontmatter may need repair; a manifest file must be valid YAML.
    let repairing = match origin {
        ManifestOrigin::Frontmatter { .. } => RepairMode::Yes,
        ManifestOrigin::Sidecar => RepairMode::No,
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
    let mut fields = Fields::new(&mut reader, &value);
    let version = match fields.manifest_version() {
        DeclaredVersion::Legacy => {
            let severity = if origin == ManifestOrigin::Sidecar { Severity::Warning } else { Severity::Info };
            let message = "there is no `manifest_version`, so the fields of the manifest are ignored: write \
                           `manifest_version: \"1.0\"` to have them checked";
            fields.reader().add(RuleId::ManifestLegacy, severity, message.to_owned());
            return Ok(ParsedManifest { manifest: None, diagnostics: reader.into_findings() });
        }
        DeclaredVersion::Unreadable => {
            return Err(ManifestError::Invalid { diagnostics: reader.into_findings() });
        }
        DeclaredVersion::Version(found) if found.major != CURRENT.major => {
            let message = format!(
                "manifest_version {found} is not supported: this program reads versions {}.x",
                CURRENT.major
            );
            fields.reader().in_key(VERSION, |reader| {
                reader.add(RuleId::ManifestVersion, Severity::Error, message);
            });
            return Err(ManifestError::Unsupported { found, diagnostics: reader.into_findings() });
        }
        DeclaredVersion::Version(version) => version,
    };
    if version > CURRENT {
        let message = format!("manifest_version {version} is newer than {CURRENT}: newer fields are ignored");
        fields.reader().in_key(VERSION, |reader| {
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
