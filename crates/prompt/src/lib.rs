//! What the model reads about skills, artifacts and tools: prompt sections and tool definitions, with everything escaped.
//!
//! Everything here is deterministic. The same skills, options and active skills give the same bytes, since the model's service
//! caches by prefix. The crate reads nothing but the directories of loaded skills ([`SessionSkill`]), each once. It does not
//! know how tools run or where a sandbox has its files; the embedder tells it by [`SkillLocations`].

mod active_skills;
mod agent_toolset;
mod artifact_section;
mod available_skills;
mod builtin_tools;
mod composer;
mod options;
mod session_skills;
mod skill_locations;
mod skill_tools;
mod system_prompt;
mod xml;

pub use active_skills::MAX_FILES_LISTED;
pub use agent_toolset::{toolset_definition, toolset_definitions};
pub use artifact_section::{
    ArtifactAccess, ArtifactPrompt, ContainerFiles, MAX_ARTIFACTS_LISTED, MAX_ASSETS_LISTED, UrlReferences,
};
pub use available_skills::{available_skills_block, available_skills_block_at, format_skill};
pub use builtin_tools::{
    BuiltinTool, ParseToolUseError, ToolOptions, bash_tool, build_tools_param, create_file_tool,
    parse_tool_use, str_replace_tool, tool_definitions, view_tool,
};
pub use composer::SkillComposer;
pub use conjure_conversation::{SkillActivation, SkillDelivery};
pub use options::PromptOptions;
pub use session_skills::{SessionSkill, SessionSkills};
pub use skill_locations::SkillLocations;
pub use skill_tools::{SkillTool, SkillToolOptions, skill_tool_definitions};
pub use system_prompt::{build_system_prompt, discovery_instructions, environment_instructions, generate};
pub use xml::escape;
