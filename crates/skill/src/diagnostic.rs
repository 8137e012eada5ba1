//! Findings about a skill, each with its rule, severity and position.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Information only.
    Info,
    /// The skill loads, but something was repaired, ignored or is probably a mistake.
    Warning,
    /// The skill is invalid, and is not loaded.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// Declares the rules with their stable names, so that the two cannot drift apart.
macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The stable id of a rule in kebab case, for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum RuleId {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl RuleId {
            /// The id as text.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

rules! {
    /// The path to a skill or a scope does not exist.
    PathMissing = "path-missing",
    /// The path to a skill or a scope is not a directory.
    NotADirectory = "not-a-directory",
    /// The directory has no `SKILL.md`.
    SkillFileMissing = "skill-file-missing",
    /// `SKILL.md` is a directory, a device, a pipe, or a link that leads out of the skill.
    SkillFileKind = "skill-file-kind",
    /// The file or directory cannot be read.
    Unreadable = "unreadable",
    /// The file is larger than the limit.
    FileTooLarge = "file-too-large",
    /// `SKILL.md` is not UTF-8 text.
    NotUtf8 = "not-utf8",
    /// The file does not begin with `---`.
    FrontmatterMissing = "frontmatter-missing",
    /// No line ends the frontmatter.
    FrontmatterUnclosed = "frontmatter-unclosed",
    /// The frontmatter is larger than the limit.
    FrontmatterTooLarge = "frontmatter-too-large",
    /// The frontmatter is not YAML, or not the part of YAML that is allowed.
    FrontmatterSyntax = "frontmatter-syntax",
    /// The frontmatter is a list or a text, not a mapping.
    FrontmatterNotMapping = "frontmatter-not-mapping",
    /// The frontmatter was repaired to be read.
    FrontmatterRepaired = "frontmatter-repaired",
    /// A field that the format does not know.
    UnknownField = "unknown-field",
    /// There is no `name`.
    NameMissing = "name-missing",
    /// The `name` is blank or not text.
    NameEmpty = "name-empty",
    /// The `name` has more than 64 code points.
    NameTooLong = "name-too-long",
    /// The `name` is not lowercase.
    NameNotLowercase = "name-not-lowercase",
    /// The `name` begins or ends with a hyphen.
    NameEdgeHyphen = "name-edge-hyphen",
    /// The `name` has two hyphens side by side.
    NameDoubleHyphen = "name-double-hyphen",
    /// The `name` has other characters than letters, digits and hyphens.
    NameCharacters = "name-characters",
    /// The `name` cannot be a directory's.
    NameUnsafe = "name-unsafe",
    /// The `name` differs from the directory's.
    NameDirectoryMismatch = "name-directory-mismatch",
    /// There is no `description`.
    DescriptionMissing = "description-missing",
    /// The `description` is blank or not text.
    DescriptionEmpty = "description-empty",
    /// The `description` has more than 1024 code points.
    DescriptionTooLong = "description-too-long",
    /// The `description` has invisible characters, or characters that change the text direction.
    DescriptionDeceptive = "description-deceptive",
    /// The instructions have invisible characters, or characters that change the text direction.
    BodyDeceptive = "body-deceptive",
    /// The `compatibility` is not text.
    CompatibilityNotText = "compatibility-not-text",
    /// The `compatibility` has more than 500 code points.
    CompatibilityTooLong = "compatibility-too-long",
    /// `license` or `allowed-tools` is not text.
    FieldNotText = "field-not-text",
    /// `metadata` is not a map of texts to texts.
    MetadataShape = "metadata-shape",
    /// A rule of `allowed-tools` that is not understood, and approves nothing.
    AllowedTools = "allowed-tools",
    /// The `manifest_version` is invalid or unknown.
    ManifestVersion = "manifest-version",
    /// There are fields of a manifest, but no `manifest_version`, so they are ignored.
    ManifestLegacy = "manifest-legacy",
    /// There are two manifests: in the frontmatter and in the file beside it.
    ManifestTwice = "manifest-twice",
    /// A manifest in the frontmatter, which the format does not allow, could be in its own file.
    ManifestSidecar = "manifest-sidecar",
    /// The manifest is not YAML, or is too large or too deep.
    ManifestSyntax = "manifest-syntax",
    /// A field of the manifest that is not known.
    ManifestField = "manifest-field",
    /// A field of the manifest is missing, or is not what it must be.
    ManifestValue = "manifest-value",
    /// A name in the manifest is invalid or a duplicate.
    ManifestName = "manifest-name",
    /// A path of the manifest is absolute or leads out of its base.
    ManifestPath = "manifest-path",
    /// The schema of an input is invalid.
    ManifestSchema = "manifest-schema",
    /// The package is broken, hostile or too large.
    PackageInvalid = "package-invalid",
    /// All packages of one discovery are too large together, so this one is not unpacked.
    PackageBudget = "package-budget",
    /// A file could not be written, such as one of a package that is unpacked.
    Unwritable = "unwritable",
    /// A skill that was loaded before cannot be loaded any more. Its last good version is kept.
    LastGoodKept = "last-good-kept",
    /// Two skills bear the same name.
    NameCollision = "name-collision",
    /// A scope is not trusted, so its skills are not loaded.
    ScopeUntrusted = "scope-untrusted",
    /// A scope has more or deeper directories than the limits allow.
    ScopeBounds = "scope-bounds",
    /// A link leads out of its scope, which is not allowed.
    ScopeLink = "scope-link",
}

impl RuleId {
    /// Whether it is a rule of manifests.
    pub(crate) const fn is_of_manifest(self) -> bool {
        matches!(
            self,
            Self::ManifestVersion
                | Self::ManifestLegacy
                | Self::ManifestTwice
                | Self::ManifestSidecar
                | Self::ManifestSyntax
                | Self::ManifestField
                | Self::ManifestValue
                | Self::ManifestName
                | Self::ManifestPath
                | Self::ManifestSchema
        )
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A position in a text file. Line and column count from 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

/// One finding. Its text form is `path:line:column: severity[rule]: message`. Without a position, line and column
/// are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    rule: RuleId,
    severity: Severity,
    message: String,
    #[serde(serialize_with = "lossy_path")]
    path: PathBuf,
    #[serde(flatten)]
    position: Option<Position>,
}

impl Diagnostic {
    /// Creates a finding about a whole file or directory.
    #[must_use]
    pub fn new(
        rule: RuleId,
        severity: Severity,
        message: impl Into<String>,
        path: impl Into<PathBuf>,
    ) -> Self {
        Self { rule, severity, message: message.into(), path: path.into(), position: None }
    }

    /// Sets the position in the file.
    #[must_use]
    pub fn at(mut self, position: Position) -> Self {
        self.position = Some(position);
        self
    }

    /// Sets the file.
    #[must_use]
    pub(crate) fn in_file(mut self, path: &Path) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// The rule that it is about.
    #[must_use]
    pub const fn rule(&self) -> RuleId {
        self.rule
    }

    /// Its severity.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.severity
    }

    /// The message for people. Rules of the reference validator have its messages.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The file or directory. Empty when a text without a file was parsed.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The position in the file, if there is one.
    #[must_use]
    pub const fn position(&self) -> Option<Position> {
        self.position
    }

    /// Whether it makes the skill invalid.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.as_os_str().is_empty() {
            write!(f, "{}:", self.path.display())?;
        }
        if let Some(Position { line, column }) = self.position {
            write!(f, "{line}:{column}:")?;
        }
        if self.position.is_some() || !self.path.as_os_str().is_empty() {
            f.write_str(" ")?;
        }
        write!(f, "{}[{}]: {}", self.severity, self.rule, self.message)
    }
}

/// Paths need not be UTF-8, but JSON must be.
fn lossy_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_has_position_severity_and_rule() {
        let finding = Diagnostic::new(RuleId::NameMissing, Severity::Error, "no name", "a/SKILL.md");
        assert_eq!(finding.to_string(), "a/SKILL.md: error[name-missing]: no name");
        let finding = finding.at(Position { line: 2, column: 7 });
        assert_eq!(finding.to_string(), "a/SKILL.md:2:7: error[name-missing]: no name");
        assert_eq!(finding.in_file(Path::new("")).to_string(), "2:7: error[name-missing]: no name");
    }

    #[test]
    fn json_keeps_everything() {
        let whole = Diagnostic::new(RuleId::NotUtf8, Severity::Warning, "m", "p");
        let placed = whole.clone().at(Position { line: 1, column: 2 });
        for finding in [whole, placed] {
            let json = serde_json::to_string(&finding).unwrap();
            assert_eq!(serde_json::from_str::<Diagnostic>(&json).unwrap(), finding, "{json}");
        }
    }
}
