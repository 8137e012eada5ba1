//! Skills that servers offer (SEP-2640). They are listed with the tools. The model loads them with a tool, after the user has approved.
//!
//! An approval is for one version of a skill, which is a digest over all its files. Files that do not match it are refused.

mod listed_skill;
mod load_skill;
mod skill_files;

pub(super) use listed_skill::{ListedSkill, SkillListing};
pub(super) use load_skill::{LOAD_SKILL_TOOL, LoadSkillTool, OfferedSkill};
pub(super) use skill_files::{SkillReadError, SkillReader, VerifiedSkill};
