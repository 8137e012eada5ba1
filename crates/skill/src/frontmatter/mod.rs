//! The frontmatter of a `SKILL.md`: what a skill says of itself before its body is read.
//!
//! Pure: a text goes in, values and findings come out.

mod check;
mod fence;

use std::borrow::Cow;
use std::sync::Arc;

pub use check::MAX_DESCRIPTION_CHARS;
use fence::Fence;
pub(crate) use fence::{Scan, scan};

use crate::diagnostic::{Diagnostic, Position, RuleId, Severity};
use crate::manifest::{self, Manifest, SIDECAR_FILE};
use crate::metadata::Metadata;
use crate::name::{self, SkillName};
use crate::yaml::{self, Mark, Node};

/// The most bytes of frontmatter that are read, its two fences included.
pub const MAX_FRONTMATTER_BYTES: usize = 1024 * 1024;

/// How exactly a skill must keep to the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// As the format's reference validator: what it refuses is an error.
    Strict,
    /// As its guide for clients says: what can be understood is loaded, with a warning.
    Lenient,
}

/// The fields of a frontmatter that keep the rules of the [`Mode`] in which they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frontmatter {
    name: SkillName,
    description: String,
    license: Option<String>,
    compatibility: Option<String>,
    allowed_tools: Option<String>,
    metadata: Metadata,
    manifest: Option<Arc<Manifest>>,
}

/// A `SKILL.md` taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The fields.
    pub frontmatter: Frontmatter,
    /// The text below the frontmatter, without the space around it, line ends as `\n`.
    pub body: String,
    /// What was repaired, ignored or is likely unintended; no errors.
    pub diagnostics: Vec<Diagnostic>,
}

/// A text whose frontmatter cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", diagnostics.iter().map(|finding| finding.message()).collect::<Vec<_>>().join("; "))]
pub struct FrontmatterError {
    /// All findings, at least one of them an error.
    pub diagnostics: Vec<Diagnostic>,
}

impl Frontmatter {
    /// Takes the content of a `SKILL.md` apart. The findings bear no path, and whether the name is the folder's is not
    /// checked: that is for [`Skill::load`](crate::Skill::load), which knows the file.
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
    /// When the frontmatter is missing, not closed, larger than [`MAX_FRONTMATTER_BYTES`], not readable, or breaks a
    /// rule of the mode.
    pub fn parse(content: &str, mode: Mode) -> Result<Document, FrontmatterError> {
        let (frontmatter, body, diagnostics) = Self::parse_in(content, mode, Folder::Unknown)?;
        Ok(Document { frontmatter, body, diagnostics })
    }

    /// The same for a file in a folder. The content may be cut off after the second fence; then so is the body.
    pub(crate) fn parse_in(
        content: &str,
        mode: Mode,
        folder: Folder<'_>,
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
            check::check(root, mode, folder, &mut Findings { fence_line: fence.line, list: &mut findings });
        findings.extend(sidecar_hint(&fence, mode));
        if let Some(frontmatter) =
            frontmatter.as_mut().filter(|_| mode == Mode::Lenient && has_manifest(&fence))
        {
            let origin = manifest::Origin::Frontmatter { fence_line: fence.line };
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

    /// The skill's name.
    #[must_use]
    pub const fn name(&self) -> &SkillName {
        &self.name
    }

    /// What the skill does and when to use it, without the space around it.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Its licence.
    #[must_use]
    pub fn license(&self) -> Option<&str> {
        self.license.as_deref()
    }

    /// What it needs from its surroundings.
    #[must_use]
    pub fn compatibility(&self) -> Option<&str> {
        self.compatibility.as_deref()
    }

    /// The tools that it asks to use without asking, as written: patterns separated by space.
    #[must_use]
    pub fn allowed_tools(&self) -> Option<&str> {
        self.allowed_tools.as_deref()
    }

    /// Additional properties.
    #[must_use]
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The manifest that stands among the fields. A strict reader refuses such a frontmatter.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_deref()
    }
}

/// Whether the text between the fences seems to have a manifest in it.
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

/// What a strict reader is told of a manifest that stands where the format has no room for it.
fn sidecar_hint(fence: &Fence<'_>, mode: Mode) -> Option<Diagnostic> {
    let message = format!(
        "the format has no room for a manifest in the frontmatter: move its fields to `{SIDECAR_FILE}` beside SKILL.md, \
         or read leniently"
    );
    let is_misplaced = mode == Mode::Strict && has_manifest(fence);
    is_misplaced.then(|| Diagnostic::new(RuleId::ManifestSidecar, Severity::Info, message, ""))
}

/// The folder that a `SKILL.md` lies in, whose name must be the skill's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Folder<'a> {
    /// The text has no file.
    Unknown,
    /// The last segment of the folder's path.
    Named(&'a str),
}

/// Reads the text between the fences.
fn read(fence: &Fence<'_>, mode: Mode, findings: &mut Vec<Diagnostic>) -> Result<Node, Diagnostic> {
    let error = match yaml::read_strict(fence.yaml) {
        Ok(root) => return Ok(root),
        Err(error) => error,
    };
    let place = position(error.mark, fence.line);
    let repaired = match mode {
        Mode::Strict => None,
        Mode::Lenient => yaml::read_lenient(fence.yaml),
    };
    match repaired {
        Some((root, repair)) => {
            let message = format!("{}; {}", error.message, repair.as_str());
            findings
                .push(Diagnostic::new(RuleId::FrontmatterRepaired, Severity::Warning, message, "").at(place));
            Ok(root)
        }
        None => {
            let message = format!("Invalid YAML in frontmatter: {}", error.message);
            Err(Diagnostic::new(RuleId::FrontmatterSyntax, Severity::Error, message, "").at(place))
        }
    }
}

/// Findings about places between the fences.
struct Findings<'a> {
    /// The line of the first fence.
    fence_line: u32,
    list: &'a mut Vec<Diagnostic>,
}

impl Findings<'_> {
    fn add(&mut self, rule: RuleId, severity: Severity, message: impl Into<String>, mark: Mark) {
        self.list.push(Diagnostic::new(rule, severity, message, "").at(position(mark, self.fence_line)));
    }
}

/// A place between the fences as a place in the file: the text begins on the first fence's line, after its `---`.
pub(crate) fn position(mark: Mark, fence_line: u32) -> Position {
    let shift = if mark.line == 1 { 3 } else { 0 };
    Position { line: mark.line.saturating_add(fence_line - 1), column: mark.column.saturating_add(shift) }
}

/// The body of a whole `SKILL.md`, whatever its frontmatter holds.
pub(crate) fn body(content: &str) -> Result<String, Diagnostic> {
    let content = unix_lines(content);
    let fence = fence::split(&content, Mode::Lenient, &mut Vec::new())?;
    Ok(name::strip(fence.body).to_owned())
}

/// The text with every line end as `\n`, as the reference implementation reads files.
pub(crate) fn unix_lines(text: &str) -> Cow<'_, str> {
    if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(text)
    }
}

impl From<Diagnostic> for FrontmatterError {
    fn from(diagnostic: Diagnostic) -> Self {
        Self { diagnostics: vec![diagnostic] }
    }
}

#[cfg(test)]
mod tests;
