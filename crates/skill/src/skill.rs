//! A loaded skill: its metadata in memory, its body and its files read when asked for.
//!
//! A [`Skill`] is a value about a folder that others may change; each read says what it found at that moment, and a
//! crash loses nothing. A skill from a package is about a private folder instead, which goes with the last clone.

mod sidecar;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::error::{Missing, SkillError};
use crate::files::{Folder, PlainFile};
use crate::frontmatter::{self, Frontmatter, FrontmatterError, MAX_FRONTMATTER_BYTES, Mode, Scan};
use crate::manifest::Manifest;
use crate::metadata::Metadata;
use crate::name::SkillName;
use crate::package::Origin;
use crate::properties::Properties;

/// The names of a skill's main file, in the order in which they are looked for.
pub(crate) const SKILL_FILES: [&str; 2] = ["SKILL.md", "skill.md"];

/// The most bytes of a `SKILL.md`.
pub const MAX_SKILL_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// How much of a file is read at first: most frontmatters end within.
const HEAD_BYTES: usize = 1024;

/// A loaded skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    frontmatter: Frontmatter,
    /// The manifest that lies beside its `SKILL.md`.
    sidecar: Option<Arc<Manifest>>,
    location: PathBuf,
    root_dir: PathBuf,
    diagnostics: Box<[Diagnostic]>,
    /// Where its folder was unpacked from; keeps that folder.
    origin: Option<Origin>,
}

impl Skill {
    /// Loads the skill in this folder, or whose `SKILL.md` this is. Of the file no more is read than holds the
    /// frontmatter; in strict mode all of it, because all of it must be UTF-8.
    ///
    /// # Errors
    /// When there is no folder or no `SKILL.md` in it, when it is not a plain file within the folder, cannot be read, or
    /// its frontmatter breaks a rule of the mode.
    pub fn load(path: impl AsRef<Path>, mode: Mode) -> Result<Self, SkillError> {
        let place = Place::find(path.as_ref())?;
        let (file_name, file) = find_skill_file(&place.root_dir)?;
        Self::read(place.root_dir, file_name, &place.folder_name, file, mode)
    }

    /// A skill of these fields, without any file being looked at. `location` is the path that its `SKILL.md` has, or
    /// will have.
    #[must_use]
    pub fn new(frontmatter: Frontmatter, location: impl Into<PathBuf>) -> Self {
        let location = location.into();
        let root_dir = location.parent().map(Path::to_owned).unwrap_or_default();
        Self { frontmatter, sidecar: None, location, root_dir, diagnostics: Box::default(), origin: None }
    }

    /// Reads the open `SKILL.md` of a folder.
    pub(crate) fn read(
        root_dir: PathBuf,
        file_name: &str,
        folder_name: &OsStr,
        mut file: PlainFile,
        mode: Mode,
    ) -> Result<Self, SkillError> {
        let location = root_dir.join(file_name);
        let bytes = match mode {
            Mode::Strict => file.read_all(MAX_SKILL_FILE_BYTES)?,
            Mode::Lenient => read_head(&mut file)?,
        };
        let folder_name = folder_name.to_string_lossy();
        let folder = frontmatter::Folder::Named(&folder_name);
        let parsed = match text(&bytes, SKILL_FILES[0]) {
            Ok(content) => Frontmatter::parse_in(content, mode, folder),
            Err(finding) => Err(finding.into()),
        };
        let (frontmatter, _, findings) = parsed.map_err(|FrontmatterError { diagnostics }| {
            SkillError::from_findings(location.clone(), diagnostics)
        })?;
        let findings = findings.into_iter().map(|finding| finding.in_file(&location));
        let sidecar = sidecar::read(&root_dir, &frontmatter)?;
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

    /// What it needs from its surroundings.
    #[must_use]
    pub fn compatibility(&self) -> Option<&str> {
        self.frontmatter.compatibility()
    }

    /// The tools that it asks to use without asking, as written: patterns separated by space.
    #[must_use]
    pub fn allowed_tools(&self) -> Option<&str> {
        self.frontmatter.allowed_tools()
    }

    /// Additional properties.
    #[must_use]
    pub const fn metadata(&self) -> &Metadata {
        self.frontmatter.metadata()
    }

    /// What it declares of its inputs, needs and behaviour, in its frontmatter or in the file
    /// [`SIDECAR_FILE`](crate::SIDECAR_FILE); none of a skill that declares no `manifest_version`.
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

    /// The absolute, resolved folder of its `SKILL.md`.
    #[must_use]
    pub fn root_dir(&self) -> &Path {
        &self.root_dir
    }

    /// The package that it was unpacked from, if it was.
    #[must_use]
    pub fn package(&self) -> Option<&Path> {
        self.origin.as_ref().map(Origin::package)
    }

    /// How many bytes the folder takes that it was unpacked into.
    pub(crate) fn unpacked_bytes(&self) -> u64 {
        self.origin.as_ref().map_or(0, Origin::disk_bytes)
    }

    /// Where it was found: its package, or else its `SKILL.md`.
    #[must_use]
    pub(crate) fn source(&self) -> &Path {
        self.package().unwrap_or(&self.location)
    }

    /// The same skill, in a folder that was unpacked from a package.
    #[must_use]
    pub(crate) fn unpacked_from(mut self, origin: Origin) -> Self {
        for finding in &mut self.diagnostics {
            let path = origin.path_in_package(finding.path());
            *finding = finding.clone().in_file(&path);
        }
        self.origin = Some(origin);
        self
    }

    /// What was repaired, ignored or is likely unintended in its frontmatter; no errors.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Its properties as the reference implementation prints them.
    #[must_use]
    pub fn properties(&self) -> Properties<'_> {
        Properties::of(&self.frontmatter)
    }

    /// Reads its instructions: the text below the frontmatter, without the space around it, line ends as `\n`.
    ///
    /// # Errors
    /// When the file cannot be read any more, is larger than [`MAX_SKILL_FILE_BYTES`], is not UTF-8 or lost its fences.
    pub fn body(&self) -> Result<String, SkillError> {
        let folder = Folder::open(&self.root_dir)?;
        let name = self.location.file_name().unwrap_or_else(|| OsStr::new(SKILL_FILES[0]));
        let bytes = folder.open_file(Path::new(name))?.read_all(MAX_SKILL_FILE_BYTES)?;
        let body = text(&bytes, SKILL_FILES[0]).and_then(frontmatter::body);
        body.map_err(|finding| SkillError::InvalidFrontmatter {
            path: self.location.clone(),
            diagnostics: vec![finding.in_file(&self.location)],
        })
    }
}

/// Where a path to a skill leads.
#[derive(Debug)]
pub(crate) struct Place {
    /// The absolute, resolved folder.
    pub(crate) root_dir: PathBuf,
    /// The name by which the folder was given, which may be that of a link to it.
    pub(crate) folder_name: std::ffi::OsString,
}

impl Place {
    /// Finds the folder that a path to it, or to the `SKILL.md` in it, stands for.
    pub(crate) fn find(path: &Path) -> Result<Self, SkillError> {
        let is_skill_file =
            path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(SKILL_FILES[0]) && path.is_file());
        let folder = match path.parent() {
            Some(parent) if is_skill_file => parent,
            _ => path,
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let root_dir =
            std::fs::canonicalize(folder).map_err(|error| match SkillError::from_io(path, error) {
                SkillError::FileNotFound { path } => SkillError::NotFound { path, missing: Missing::Path },
                other => other,
            })?;
        if !root_dir.is_dir() {
            return Err(SkillError::NotFound { path: path.to_owned(), missing: Missing::Folder });
        }
        let folder_name = folder.file_name().or_else(|| root_dir.file_name()).unwrap_or_default().to_owned();
        Ok(Self { root_dir, folder_name })
    }
}

/// Opens the `SKILL.md` of a folder.
pub(crate) fn find_skill_file(root_dir: &Path) -> Result<(&'static str, PlainFile), SkillError> {
    let folder = Folder::open(root_dir)?;
    for name in SKILL_FILES {
        match folder.open_file(Path::new(name)) {
            Err(SkillError::FileNotFound { .. }) => {}
            other => return other.map(|file| (name, file)),
        }
    }
    Err(SkillError::NotFound { path: root_dir.to_owned(), missing: Missing::SkillFile })
}

/// Reads a file until its frontmatter is closed, and no more of the body than that brings along.
fn read_head(file: &mut PlainFile) -> Result<Vec<u8>, SkillError> {
    let mut bytes = vec![0; HEAD_BYTES];
    let mut filled = 0;
    loop {
        let count = file.read_some(&mut bytes[filled..])?;
        filled += count;
        match frontmatter::scan(&bytes[..filled], Mode::Lenient) {
            Scan::Closed { end, .. } => {
                // The second fence is kept, so that what is parsed is a whole frontmatter.
                bytes.truncate(end + 3);
                return Ok(bytes);
            }
            Scan::Open if count > 0 && filled <= MAX_FRONTMATTER_BYTES => {
                if filled == bytes.len() {
                    bytes.resize(filled * 4, 0);
                }
            }
            Scan::Open | Scan::Missing => {
                // A character may have been cut in the middle; the text is refused anyway, for its fences.
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

/// The bytes as text.
pub(crate) fn text<'a>(bytes: &'a [u8], file: &str) -> Result<&'a str, Diagnostic> {
    std::str::from_utf8(bytes).map_err(|error| {
        let message =
            format!("{file} is not UTF-8 text: byte {} is not part of a character", error.valid_up_to());
        Diagnostic::new(RuleId::NotUtf8, Severity::Error, message, "")
    })
}

#[cfg(test)]
mod tests;
