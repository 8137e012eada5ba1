//! What the model sees of skills: tool definitions and instructions, everything escaped.
//!
//! Everything in here is pure and deterministic: the same skills and options give the same bytes, since the
//! model's service caches by prefix. Nothing in here knows how tools run or where a sandbox has its files; the
//! host says so with [`Locations`].

mod compose;
mod locations;
mod options;
mod skills;
mod system;
mod tools;
mod xml;

pub use compose::SkillComposer;
pub use locations::Locations;
pub use options::{ActivationStyle, PromptOptions};
pub use skills::{available_skills_block, available_skills_block_at, format_skill};
pub use system::{build_system_prompt, discovery_instructions, environment_instructions, generate};
pub use tools::{
    BuiltinTool, ParseToolUseError, ToolOptions, bash_tool, build_tools_param, create_file_tool,
    parse_tool_use, str_replace_tool, tool_definitions, view_tool,
};
pub use xml::escape;
