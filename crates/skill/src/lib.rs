//! What a skill is: a folder with a `SKILL.md`, read, validated, found and catalogued.
//!
//! Reading is pure ([`Frontmatter::parse`]), loading reads no more than it needs ([`Skill::load`]), and every file of a
//! skill is read beneath a handle of its folder.

mod catalog;
mod diagnostic;
mod error;
mod files;
mod frontmatter;
mod metadata;
mod name;
mod skill;
mod yaml;

pub use catalog::Catalog;
pub use diagnostic::{Diagnostic, Position, RuleId, Severity};
pub use error::{SkillError, SkillErrorKind};
pub use frontmatter::{Document, Frontmatter, FrontmatterError, MAX_FRONTMATTER_BYTES, Mode};
pub use metadata::Metadata;
pub use name::{MAX_NAME_CHARS, NameProblem, SkillName, SkillNameError};
pub use skill::{MAX_SKILL_FILE_BYTES, Skill};
