//! What a skill is: a folder with a `SKILL.md`, read, validated, found and catalogued.

mod catalog;
mod name;
mod skill;

pub use catalog::Catalog;
pub use name::{SkillName, SkillNameError};
pub use skill::Skill;
