//! What the model sees of skills: tool definitions and instructions, everything escaped.
//!
//! Everything in here is deterministic: the same skills, options and active skills give the same bytes, since the model's service
//! caches by prefix. Nothing is read but what a loaded skill's folder holds ([`SessionSkill`]), once. Nothing in here knows how tools
//! run or where a sandbox has its files; the host says so with [`Locations`].

mod active;
mod artifacts;
mod compose;
mod locations;
mod options;
mod session_skills;
mod skill_tools;
mod skills;
mod system;
mod tools;
mod xml;

pub use active::MOST_FILES_NAMED;
pub use artifacts::{
    ArtifactAccess, ArtifactPrompt, ContainerFiles, MOST_ARTIFACTS_NAMED, MOST_ASSETS_NAMED, UrlReferences,
};
pub use compose::SkillComposer;
pub use conjure_conversation::{Activation, Delivery};
pub use locations::Locations;
pub use options::PromptOptions;
pub use session_skills::{SessionSkill, SessionSkills};
pub use skill_tools::{SkillTool, SkillToolOptions, skill_tool_definitions};
pub use skills::{available_skills_block, available_skills_block_at, format_skill};
pub use system::{build_system_prompt, discovery_instructions, environment_instructions, generate};
pub use tools::{
    BuiltinTool, ParseToolUseError, ToolOptions, bash_tool, build_tools_param, create_file_tool,
    parse_tool_use, str_replace_tool, tool_definitions, view_tool,
};
pub use xml::escape;
