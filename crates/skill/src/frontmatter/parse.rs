//! Parses the frontmatter and the body of a `SKILL.md`.

use std::borrow::Cow;

use super::check::{self, ExpectedName};
use super::document::{Document, Frontmatter, FrontmatterError, Mode};
use super::fence::{self, Fence};
use super::findings::{Findings, position};
use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::fields::name;
use crate::manifest::{self, SIDECAR_FILE};
use crate::yaml::{self, Node};

impl Frontmatter {
    /// Parses the content of a `SKILL.md`. The findings have no path. The name is not compared with the directory's
    /// name; [`Skill::load`](crate::Skill::load) does that.
    ///
    /// ```
    /// use conjure_skill::{Frontmatter, Mode};
    ///
    /// let content = "---\nname: sales-report\ndescription: Use when: sales are asked for\n---\n# Steps\n";
    /// assert!(Frontmatter::parse(content, Mode::Strict).is_err());
    /// let document = Frontmatter::parse(content, Mode::Lenient)?;
    /// assert_eq!(document.frontmatter.description(), "Use when: sales are asked for");
    /// assert_eq!(document.body, "# Steps");
    /// println!("{}", document.diagnostics[0]);
    /// # Ok::<(), conjure_skill::FrontmatterError>(())
    /// ```
    ///
    /// # Errors
    /// When the frontmatter is missing, not closed, not readable, breaks a rule of the mode, or is larger than
    /// [`MAX_FRONTMATTER_BYTES`](crate::MAX_FRONTMATTER_BYTES).
    pub fn parse(content: &str, mode: Mode) -> Result<Document, FrontmatterError> {
        let (frontmatter, body, diagnostics) = Self::parse_in(content, mode, ExpectedName::Unknown)?;
        Ok(Document { frontmatter, body, diagnostics })
    }

    /// Parses a file in a directory. The content may be truncated after the second fence, and then the body is, too.
    pub(crate) fn parse_in(
        content: &str,
        mode: Mode,
        dir: ExpectedName<'_>,
    ) -> Result<(Self, String, Vec<Diagnostic>), FrontmatterError> {
        let content = unix_lines(content);
        let mut findings = Vec::new();
        let fence = fence::split(&content, mode, &mut findings)?;
        let root = match read(&fence, mode, &mut findings) {
            Ok(root) => root,
            Err(finding) => {
                findings.push(finding);
                findings.extend(sidecar_hint(&fence, mode));
                return Err(FrontmatterError { diagnostics: findings });
            }
        };
        let mut frontmatter =
            check::check(root, mode, dir, &mut Findings { fence_line: fence.line, list: &mut findings });
        findings.extend(sidecar_hint(&fence, mode));
        if let Some(frontmatter) =
            frontmatter.as_mut().filter(|_| mode == Mode::Lenient && has_manifest(&fence))
        {
            let origin = manifest::ManifestOrigin::Frontmatter { fence_line: fence.line };
            match manifest::read(fence.yaml, origin) {
                Ok(parsed) => {
                    frontmatter.manifest = parsed.manifest;
                    findings.extend(parsed.diagnostics);
                }
                Err(error) => findings.extend(error.into_diagnostics()),
            }
        }
        match frontmatter {
            Some(frontmatter) if !findings.iter().any(Diagnostic::is_error) => {
                Ok((frontmatter, name::strip(fence.body).to_owned(), findings))
            }
            _ => Err(FrontmatterError { diagnostics: findings }),
        }
    }
}

/// Whether the text between the fences seems to contain a manifest.
fn has_manifest(fence: &Fence<'_>) -> bool {
    let is_key =
        |line: &str| line.split_once(':').is_some_and(|(key, _)| manifest::declares_manifest(unquoted(key)));
    fence.yaml.lines().any(is_key)
}

/// The text of a key without quotes around it.
fn unquoted(key: &str) -> &str {
    let key = key.trim_end();
    let inner = |quote| key.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(key)
}

/// The hint of strict mode about a manifest in the frontmatter, where the format does not allow it.
fn sidecar_hint(fence: &Fence<'_>, mode: Mode) -> Option<Diagnostic> {
    let message = format!(
        "the format has no room for a manifest in the frontmatter: move its fields to `{SIDECAR_FILE}` beside SKILL.md, \
         or read leniently"
    );
    let is_misplaced = mode == Mode::Strict && has_manifest(fence);
    is_misplaced.then(|| Diagnostic::new(RuleId::ManifestSidecar, Severity::Info, message, ""))
}

/// Parses the text between the fences.
fn read(fence: &Fence<'_>, mode: Mode, findings: &mut Vec<Diagnostic>) -> Result<Node, Diagnostic> {
    let error = match yaml::read_strict(fence.yaml) {
        Ok(root) => return Ok(root),
        Err(error) => error,
    };
    let mark = position(error.mark, fence.line);
    let repaired = match mode {
        Mode::Strict => None,
        Mode::Lenient => yaml::read_lenient(fence.yaml),
    };
    match repaired {
        Some((root, repair)) => {
            let message = format!("{}; {}", error.message, repair.as_str());
            findings
                .push(Diagnostic::new(RuleId::FrontmatterRepaired, Severity::Warning, message, "").at(mark));
            Ok(root)
        }
        None => {
            let message = format!("Invalid YAML in frontmatter: {}", error.message);
            Err(Diagnostic::new(RuleId::FrontmatterSyntax, Severity::Error, message, "").at(mark))
        }
    }
}

/// Returns the body of a complete `SKILL.md`. The frontmatter may be invalid.
pub(crate) fn body(content: &str) -> Result<String, Diagnostic> {
    let content = unix_lines(content);
    let fence = fence::split(&content, Mode::Lenient, &mut Vec::new())?;
    Ok(name::strip(fence.body).to_owned())
}

/// The fields of a `SKILL.md` as JSON, with all that the author wrote, and the body below them. The fields need not follow any rule.
///
/// # Errors
/// When the frontmatter is missing, not closed, no YAML, or has no form in JSON.
pub fn raw_document(
    content: &str,
) -> Result<(serde_json::Map<String, serde_json::Value>, String), Diagnostic> {
    let content = unix_lines(content);
    let fence = fence::split(&content, Mode::Lenient, &mut Vec::new())?;
    let unreadable = |reason: String| {
        let message = format!("Invalid YAML in frontmatter: {reason}");
        Diagnostic::new(RuleId::FrontmatterSyntax, Severity::Error, message, "")
    };
    let root =
        yaml::read_typed(fence.yaml, yaml::RepairMode::Yes).map_err(|error| unreadable(error.message))?;
    let fields = serde_json::to_value(root).map_err(|error| unreadable(error.to_string()))?;
    let serde_json::Value::Object(fields) = fields else {
        return Err(unreadable("it is not a mapping".to_owned()));
    };
    Ok((fields, name::strip(fence.body).to_owned()))
}

/// Replaces every line end by `\n`, as the reference implementation does.
pub(crate) fn unix_lines(text: &str) -> Cow<'_, str> {
    if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(text)
    }
}
