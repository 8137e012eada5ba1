//! What a skill is: a folder with a `SKILL.md`, read, validated, found and catalogued.
//!
//! Reading is pure ([`Frontmatter::parse`]), loading reads no more than it needs ([`Skill::load`]), and every file of a
//! skill is read beneath a handle of its folder.

mod allowed_tools;
mod catalog;
mod diagnostic;
mod discovery;
mod error;
mod files;
mod frontmatter;
mod manifest;
mod metadata;
mod name;
mod near;
mod package;
mod preflight;
mod properties;
mod reload;
mod resources;
mod schema;
mod skill;
#[cfg(test)]
mod unprivileged;
mod validate;
mod version;
mod walk;
mod yaml;

pub use allowed_tools::{AllowRule, AllowRuleError, AllowedTools, Glob, Pattern};
pub use catalog::{Catalog, find, index};
pub use diagnostic::{Diagnostic, Position, RuleId, Severity};
pub use discovery::{Bounds, Discovery, Links, Scope, ScopeKind, Trust, discover, load_all, scan_directory};
pub use error::{Missing, SkillError, SkillErrorKind};
pub use frontmatter::{
    Document, Frontmatter, FrontmatterError, MAX_DESCRIPTION_CHARS, MAX_FRONTMATTER_BYTES, Mode,
};
pub use manifest::{
    Base, CommandNeed, Destructive, EnvVariable, Execution, FileNeed, Input, MAX_MANIFEST_BYTES, Manifest,
    ManifestError, ManifestVersion, Need, OutputArtifact, OutputFile, OutputPattern, OutputPatternError,
    ParsedManifest, PathProblem, SIDECAR_FILE, input_text, input_variable,
};
pub use metadata::Metadata;
pub use name::{MAX_NAME_CHARS, NameProblem, SkillName, SkillNameError};
pub use near::nearest;
pub use package::{
    Extracted, Package, PackageFile, PackageLimits, PackageProblem, PackageProblemKind, Packed,
    extract_skill_file, load_skill_file, pack, pack_file,
};
pub use preflight::{
    AskVersion, CommandFound, InputProblem, Inputs, Network, Outcome, Preflight, PreflightFinding,
    PreflightReport, PreflightRule, Probe, ProbeError, ProbeFuture, RuleReport,
};
pub use properties::Properties;
pub use reload::{Reload, Reloader};
pub use resources::{MAX_RESOURCE_BYTES, Resource, ResourceStart, Resources, SkillDigests};
pub use schema::{Disclosure, Mismatch, Schema, ValueType};
pub use skill::{MAX_SKILL_FILE_BYTES, Skill};
pub use validate::validate;
pub use version::{ParseVersionError, Version};
