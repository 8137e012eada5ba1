//! Skills: a skill is a directory with a `SKILL.md`. This crate reads, validates, finds and catalogues skills.
//!
//! Parsing is pure ([`Frontmatter::parse`]). Loading reads no more than it needs ([`Skill::load`]). Every file of
//! a skill is read beneath a handle of its directory.

mod allowed_tools;
mod catalog;
mod diagnostic;
mod discovery;
mod error;
mod fields;
mod frontmatter;
mod manifest;
mod package;
mod preflight;
mod reload;
mod resources;
mod scan;
mod schema;
mod skill;
mod suggestion;
mod yaml;

pub use allowed_tools::{AllowRule, AllowRuleError, AllowedTools, Glob, Pattern};
pub use catalog::{Catalog, find, index};
pub use diagnostic::{Diagnostic, Position, RuleId, Severity};
pub use discovery::{Discovery, Scope, ScopeKind, Trust, scan_directory};
pub use error::{Missing, SkillError, SkillErrorKind};
pub use fields::metadata::Metadata;
pub use fields::name::{MAX_NAME_CHARS, NameProblem, SkillName, SkillNameError};
pub use fields::properties::Properties;
pub use fields::version::{ParseVersionError, Version};
pub use frontmatter::{
    Document, Frontmatter, FrontmatterError, MAX_DESCRIPTION_CHARS, MAX_FRONTMATTER_BYTES, Mode, raw_document,
};
pub use manifest::{
    Destructive, EnvVariable, Execution, Input, MAX_MANIFEST_BYTES, Manifest, ManifestError, ManifestVersion,
    OutputArtifact, OutputFile, OutputPattern, OutputPatternError, ParsedManifest, PathBase, PathProblem,
    RequiredCommand, RequiredFile, Requirement, SIDECAR_FILE, input_text, input_variable,
};
pub use package::{
    PackReport, Package, PackageFile, PackageLimits, PackageProblem, PackageProblemKind, UnpackedPackage,
    extract_skill_file, load_skill_file, pack, pack_file,
};
pub use preflight::{
    CommandProbe, InputProblem, Inputs, Network, Preflight, PreflightFinding, PreflightReport, PreflightRule,
    Probe, ProbeError, ProbeFuture, RuleOutcome, RuleReport, VersionQuery,
};
pub use reload::{Reload, Reloader, discover, load_all};
pub use resources::{MAX_RESOURCE_BYTES, Resource, ResourceStart, Resources, SkillDigests};
pub use scan::scope_scan::{DiscoveryLimits, LinkPolicy};
pub use schema::{Disclosure, Schema, SchemaMismatch, ValueType};
pub use skill::{MAX_SKILL_FILE_BYTES, Skill, validate};
pub use suggestion::closest_match;
