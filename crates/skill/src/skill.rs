//! A loaded skill. Its metadata is in memory; its body and files are read on demand.
//!
//! A [`Skill`] describes a directory that others may change. Each read returns the current content. A skill from a
//! package has a private directory, which the last clone removes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::error::{Missing, SkillError};
use crate::fields::metadata::Metadata;
use crate::fields::name::SkillName;
use crate::fields::properties::Properties;
use crate::frontmatter::{
    self, Frontmatter, FrontmatterError, MAX_FRONTMATTER_BYTES, Mode, Scan, unix_lines,
};
use crate::manifest::{MAX_MANIFEST_BYTES, Manifest, ParsedManifest, SIDECAR_FILE};
use crate::package::PackageOrigin;
use crate::scan::dir_handle::{DirHandle, RegularFile, open_direct};

/// The names of a skill's main file, in search order.
pub(crate) const SKILL_FILES: [&str; 2] = ["SKILL.md", "skill.md"];

/// The maximum size of a `SKILL.md` in bytes.
pub const MAX_SKILL_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// The size of the first read. Most frontmatters are shorter.
const HEAD_BYTES: usize = 1024;

/// A loaded skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    frontmatter: Frontmatter,
    /// The manifest in the file beside its `SKILL.md`.
    sidecar: Option<Arc<Manifest>>,
    location: PathBuf,
    root_dir: PathBuf,
    diagnostics: Box<[Diagnostic]>,
    /// The package it was unpacked from. It keeps the unpacked directory.
    origin: Option<PackageOrigin>,
}

impl Skill {
    /// Loads a skill. `path` is its directory or its `SKILL.md`. Only the part with the frontmatter is read; in
    /// strict mode the whole file, because all of it must be UTF-8.
    ///
    /// # Errors
    /// When there is no directory or no `SKILL.md`, when it is not a regular file within the directory, cannot be read,
    /// or its frontmatter breaks a rule of the mode.
    pub fn load(path: impl AsRef<Path>, mode: Mode) -> Result<Self, SkillError> {
        let location = SkillLocation::find(path.as_ref())?;
        let (file_name, file) = find_skill_file(&location.root_dir)?;
        Self::read(location.root_dir, file_name, &location.dir_name, file, mode)
    }

    /// Creates a skill from a frontmatter, without reading a file. `location` is the path of its `SKILL.md`, which
    /// need not exist.
    #[must_use]
    pub fn new(frontmatter: Frontmatter, location: impl Into<PathBuf>) -> Self {
        let location = location.into();
        let root_dir = location.parent().map(Path::to_owned).unwrap_or_default();
        Self { frontmatter, sidecar: None, location, root_dir, diagnostics: Box::default(), origin: None }
    }

    /// Loads a skill from its open `SKILL.md`.
    pub(crate) fn read(
        root_dir: PathBuf,
        file_name: &str,
        dir_name: &OsStr,
        mut file: RegularFile,
        mode: Mode,
    ) -> Result<Self, SkillError> {
        let location = root_dir.join(file_name);
        let bytes = match mode {
            Mode::Strict => file.read_all(MAX_SKILL_FILE_BYTES)?,
            Mode::Lenient => read_head(&mut file)?,
        };
        let dir_name = dir_name.to_string_lossy();
        let dir = frontmatter::ExpectedName::Named(&dir_name);
        let parsed = match text(&bytes, SKILL_FILES[0]) {
            Ok(content) => Frontmatter::parse_in(content, mode, dir),
            Err(finding) => Err(finding.into()),
        };
        let (frontmatter, _, findings) = parsed.map_err(|FrontmatterError { diagnostics }| {
            SkillError::from_findings(location.clone(), diagnostics)
        })?;
        let findings = findings.into_iter().map(|finding| finding.in_file(&location));
        let sidecar = read_manifest_file(&root_dir, &frontmatter)?;
        let diagnostics = findings.chain(sidecar.diagnostics).collect();
        Ok(Self { frontmatter, sidecar: sidecar.manifest, location, root_dir, diagnostics, origin: None })
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &SkillName {
        self.frontmatter.name()
    }

    /// What it does and when to use it.
    #[must_use]
    pub fn description(&self) -> &str {
        self.frontmatter.description()
    }

    /// Its licence.
    #[must_use]
    pub fn license(&self) -> Option<&str> {
        self.frontmatter.license()
    }

    /// Its requirements on the environment.
    #[must_use]
    pub fn compatibility(&self) -> Option<&str> {
        self.frontmatter.compatibility()
    }

    /// The tools that it asks to use without approval, as written: patterns separated by space.
    #[must_use]
    pub fn allowed_tools(&self) -> Option<&str> {
        self.frontmatter.allowed_tools()
    }

    /// Additional properties.
    #[must_use]
    pub const fn metadata(&self) -> &Metadata {
        self.frontmatter.metadata()
    }

    /// Its manifest, from the frontmatter or from the file [`SIDECAR_FILE`]. `None` without a
    /// `manifest_version`.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.sidecar.as_deref().or_else(|| self.frontmatter.manifest())
    }

    /// All fields of its frontmatter.
    #[must_use]
    pub const fn frontmatter(&self) -> &Frontmatter {
        &self.frontmatter
    }

    /// The absolute, resolved path of its `SKILL.md`.
    #[must_use]
    pub fn location(&self) -> &Path {
        &self.location
    }

    /// The absolute, resolved directory of its `SKILL.md`.
    #[must_use]
    pub fn root_dir(&self) -> &Path {
        &self.root_dir
    }

    /// The package that it was unpacked from, if it was.
    #[must_use]
    pub fn package(&self) -> Option<&Path> {
        self.origin.as_ref().map(PackageOrigin::package)
    }

    /// The disk space of the unpacked directory in bytes.
    pub(crate) fn unpacked_bytes(&self) -> u64 {
        self.origin.as_ref().map_or(0, PackageOrigin::disk_bytes)
    }

    /// Where it was found: its package, or else its `SKILL.md`.
    #[must_use]
    pub(crate) fn source(&self) -> &Path {
        self.package().unwrap_or(&self.location)
    }

    /// Marks the skill as unpacked from a package.
    #[must_use]
    pub(crate) fn unpacked_from(mut self, origin: PackageOrigin) -> Self {
        for finding in &mut self.diagnostics {
            let path = origin.path_in_package(finding.path());
            *finding = finding.clone().in_file(&path);
        }
        self.origin = Some(origin);
        self
    }

    /// What was repaired, ignored or is probably a mistake in its frontmatter; no errors.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Its properties as the reference implementation prints them.
    #[must_use]
    pub fn properties(&self) -> Properties<'_> {
        Properties::of(&self.frontmatter)
    }

    /// Reads its instructions: the trimmed text below the frontmatter, with `\n` as line end.
    ///
    /// # Errors
    /// When the file cannot be read any more, is larger than [`MAX_SKILL_FILE_BYTES`], is not UTF-8, or has no
    /// fences any more.
    pub fn body(&self) -> Result<String, SkillError> {
        let dir = DirHandle::open(&self.root_dir)?;
        let name = self.location.file_name().unwrap_or_else(|| OsStr::new(SKILL_FILES[0]));
        let bytes = dir.open_file(Path::new(name))?.read_all(MAX_SKILL_FILE_BYTES)?;
        let body = text(&bytes, SKILL_FILES[0]).and_then(frontmatter::body);
        body.map_err(|finding| SkillError::InvalidFrontmatter {
            path: self.location.clone(),
            diagnostics: vec![finding.in_file(&self.location)],
        })
    }

    /// Its findings, and one about hidden text in its body, which is read for that if it can be.
    pub(crate) fn all_diagnostics(&self) -> Vec<Diagnostic> {
        let body = self.body().unwrap_or_default();
        let message = frontmatter::deceptive_chars("the text below the frontmatter", &body);
        let finding = message.map(|message| {
            Diagnostic::new(RuleId::BodyDeceptive, Severity::Warning, message, &self.location)
        });
        self.diagnostics().iter().cloned().chain(finding).collect()
    }
}

/// The resolved location of a skill.
#[derive(Debug)]
pub(crate) struct SkillLocation {
    /// The absolute, resolved directory.
    pub(crate) root_dir: PathBuf,
    /// The name of the directory as given. It may be the name of a link.
    pub(crate) dir_name: std::ffi::OsString,
}

impl SkillLocation {
    /// Resolves the path of a skill's directory or its `SKILL.md`.
    pub(crate) fn find(path: &Path) -> Result<Self, SkillError> {
        let is_skill_file =
            path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(SKILL_FILES[0]) && path.is_file());
        let dir = match path.parent() {
            Some(parent) if is_skill_file => parent,
            _ => path,
        };
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let root_dir =
            std::fs::canonicalize(dir).map_err(|error| match SkillError::from_io(path, error) {
                SkillError::FileNotFound { path } => SkillError::NotFound { path, missing: Missing::Path },
                other => other,
            })?;
        if !root_dir.is_dir() {
            return Err(SkillError::NotFound { path: path.to_owned(), missing: Missing::Dir });
        }
        let dir_name = dir.file_name().or_else(|| root_dir.file_name()).unwrap_or_default().to_owned();
        Ok(Self { root_dir, dir_name })
    }
}

/// Opens the `SKILL.md` of a directory.
pub(crate) fn find_skill_file(root_dir: &Path) -> Result<(&'static str, RegularFile), SkillError> {
    let dir = DirHandle::open(root_dir)?;
    for name in SKILL_FILES {
        match dir.open_file(Path::new(name)) {
            Err(SkillError::FileNotFound { .. }) => {}
            other => return other.map(|file| (name, file)),
        }
    }
    Err(SkillError::NotFound { path: root_dir.to_owned(), missing: Missing::SkillFile })
}

/// Reads a file until the end of its frontmatter.
fn read_head(file: &mut RegularFile) -> Result<Vec<u8>, SkillError> {
    let mut bytes = vec![0; HEAD_BYTES];
    let mut filled = 0;
    loop {
        let count = file.read_some(&mut bytes[filled..])?;
        filled += count;
        match frontmatter::scan(&bytes[..filled], Mode::Lenient) {
            Scan::Closed { end, .. } => {
                // Keep the second fence, so that the frontmatter is complete.
                bytes.truncate(end + 3);
                return Ok(bytes);
            }
            Scan::Open if count > 0 && filled <= MAX_FRONTMATTER_BYTES => {
                if filled == bytes.len() {
                    bytes.resize(filled * 4, 0);
                }
            }
            Scan::Open | Scan::Missing => {
                // The last character may be incomplete. The text is refused anyway because of its fences.
                bytes.truncate(filled);
                let whole = match std::str::from_utf8(&bytes) {
                    Err(error) if error.error_len().is_none() => error.valid_up_to(),
                    _ => filled,
                };
                bytes.truncate(whole);
                return Ok(bytes);
            }
        }
    }
}

/// Reads the manifest file, if there is one. A missing file costs one system call.
fn read_manifest_file(root_dir: &Path, frontmatter: &Frontmatter) -> Result<ParsedManifest, SkillError> {
    let path = root_dir.join(SIDECAR_FILE);
    let opened = match open_direct(&path) {
        // It may be a link within the skill.
        Err(SkillError::PathNotAllowed { .. }) => {
            DirHandle::open(root_dir).and_then(|dir| dir.open_file(Path::new(SIDECAR_FILE)))
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

/// Converts bytes to text.
pub(crate) fn text<'a>(bytes: &'a [u8], file: &str) -> Result<&'a str, Diagnostic> {
    std::str::from_utf8(bytes).map_err(|error| {
        let message =
            format!("{file} is not UTF-8 text: byte {} is not part of a character", error.valid_up_to());
        Diagnostic::new(RuleId::NotUtf8, Severity::Error, message, "")
    })
}

/// Validates a skill. `path` is its directory or its `SKILL.md`. The skill is valid when no finding [is an
/// error](Diagnostic::is_error).
///
/// In strict mode, the verdict and the messages are those of the format's reference validator, except for the
/// descriptions of YAML errors. We differ where the reference has known defects: `---` within a line does not end
/// the frontmatter; `.` has a name; invalid UTF-8 is an error, not a crash; `metadata` must be a map of texts to
/// texts.
#[must_use]
pub fn validate(path: impl AsRef<Path>, mode: Mode) -> Vec<Diagnostic> {
    match Skill::load(path, mode) {
        Ok(skill) => skill.all_diagnostics(),
        Err(error) => SkillError::into_diagnostics(error),
    }
}

#[cfg(test)]
mod tests;
