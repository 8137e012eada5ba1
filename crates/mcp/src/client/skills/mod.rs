//! Skills that servers offer (SEP-2640): listed with the tools, and loaded by a tool of the model's once a person has agreed.
//!
//! An approval is for one version of a skill, which the digests of all its files determine. Whatever the server sends otherwise is refused.

mod listed_skill;
mod load_skill;
mod skill_files;

pub(super) use listed_skill::{ListedSkill, SkillListing};
pub(super) use load_skill::{LOAD_SKILL_TOOL, LoadSkillTool, OfferedSkill};
pub(super) use skill_files::{SkillReadError, SkillReader, VerifiedSkill};
