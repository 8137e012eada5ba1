//! The definitions of the four runtime tools (runtime specification, "Runtime Tools Specification").
//!
//! The specification's names contain a dot, which the model's service does not accept. On the wire and in all text for the model the
//! dot is an underscore. The definitions list the names of the session's skills, and stay the same as long as the session lasts.

use conjure_conversation::{SkillDelivery, ToolDefinition};
use serde_json::{Value, json};

/// The runtime tools, in the order of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkillTool {
    /// `skills.load`: makes skills active.
    Load,
    /// `skills.unload`: makes them inactive again.
    Unload,
    /// `skills.read`: reads a file of an active skill.
    Read,
    /// `skills.run_script`: runs a script of an active skill.
    RunScript,
}

impl SkillTool {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Load, Self::Unload, Self::Read, Self::RunScript];

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "skills_load",
            Self::Unload => "skills_unload",
            Self::Read => "skills_read",
            Self::RunScript => "skills_run_script",
        }
    }

    /// The tool with this name on the wire. A tool call can use only this name.
    #[must_use]
    pub fn from_wire_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// The tool with this name, on the wire or in the specification, as a person may write it in a rule.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let plain = |tool: &Self| tool.name().replacen('_', ".", 1);
        Self::ALL.into_iter().find(|tool| tool.name() == name || plain(tool) == name)
    }
}

/// Options of the runtime tools' definitions.
#[derive(Debug, Clone, Default)]
pub struct SkillToolOptions<'s> {
    /// The names of the session's skills, in order. Without skills there are no tools.
    pub skills: Vec<&'s str>,
    /// The names of the skills with scripts. If there are none, there is no `skills.run_script`.
    pub with_scripts: Vec<&'s str>,
    /// The maximum number of active skills.
    pub max_active: usize,
    /// Where the instructions of a loaded skill are delivered.
    pub delivery: SkillDelivery,
}

/// The definitions of the runtime tools for a session with these skills, in a deterministic order.
///
/// ```
/// use conjure_prompt::{SkillToolOptions, skill_tool_definitions};
///
/// let options = SkillToolOptions { skills: vec!["pdf"], max_active: 8, ..SkillToolOptions::default() };
/// let names: Vec<String> = skill_tool_definitions(&options).into_iter().map(|tool| tool.name).collect();
/// // It has no scripts, so nothing offers to run one.
/// assert_eq!(names, ["skills_load", "skills_unload", "skills_read"]);
/// ```
#[must_use]
pub fn skill_tool_definitions(options: &SkillToolOptions<'_>) -> Vec<ToolDefinition> {
    if options.skills.is_empty() {
        return Vec::new();
    }
    let mut tools = vec![load(options), unload(options), read(options)];
    if !options.with_scripts.is_empty() {
        tools.push(run_script(options));
    }
    tools
}

fn load(options: &SkillToolOptions<'_>) -> ToolDefinition {
    let delivery = match options.delivery {
        SkillDelivery::Result => "The result holds their instructions.",
        _ => {
            "Their instructions are then in your top-level instructions, for as long as the skills are loaded."
        }
    };
    define(
        SkillTool::Load,
        format!(
            "Load skills. A skill must be loaded before you use its instructions, its files or its scripts. {delivery} At \
             most {} skills can be loaded at a time.",
            options.max_active
        ),
        json!({
            "type": "object",
            "properties": {
                "names": {
                    "type": "array",
                    "items": {"type": "string", "enum": options.skills},
                    "minItems": 1,
                    "description": "The skills to load. Where instructions conflict, those of the later skill count",
                },
                "mode": {
                    "type": "string",
                    "enum": ["replace", "add"],
                    "description":
                        "replace (the default): these skills alone are loaded then. add: those that are loaded stay",
                },
            },
            "required": ["names"],
        }),
    )
}

fn unload(options: &SkillToolOptions<'_>) -> ToolDefinition {
    define(
        SkillTool::Unload,
        "Unload skills that are not needed any more.".to_owned(),
        json!({
            "type": "object",
            "properties": {
                "names": {
                    "type": "array",
                    "items": {"type": "string", "enum": options.skills},
                    "description": "The skills to unload",
                },
                "all": {"type": "boolean", "description": "Whether to unload every skill, instead of naming them"},
            },
        }),
    )
}

fn read(options: &SkillToolOptions<'_>) -> ToolDefinition {
    define(
        SkillTool::Read,
        "Read a file of a loaded skill, such as one of its references or assets: text, or an image."
            .to_owned(),
        json!({
            "type": "object",
            "properties": {
                "path": {
                    "type": "string",
                    "description": "Path of the file, relative to the skill's directory; of a directory, to list its files",
                },
                "skill": skill(&options.skills),
            },
            "required": ["path"],
        }),
    )
}

fn run_script(options: &SkillToolOptions<'_>) -> ToolDefinition {
    define(
        SkillTool::RunScript,
        "Run a script of a loaded skill. Gives its exit code, standard output and standard error. The skill's directory cannot be \
         written: let scripts write to the workspace, which $CONJURE_WORKSPACE names, or to $CONJURE_SCRATCH."
            .to_owned(),
        json!({
            "type": "object",
            "properties": {
                "path": {
                    "type": "string",
                    "description": "Path of the script, relative to the skill's directory, such as scripts/extract.py",
                },
                "args": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Its arguments, each as it is: no shell looks at them",
                },
                "env": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "description": "Environment variables to add",
                },
                "workdir": {
                    "type": "string",
                    "description":
                        "The directory to run it in: absolute, or relative to the skill's directory, which is the default",
                },
                "skill": skill(&options.with_scripts),
            },
            "required": ["path"],
        }),
    )
}

fn skill(names: &[&str]) -> Value {
    json!({
        "type": "string",
        "enum": names,
        "description": "Which loaded skill; the one that was loaded last, where this is left out",
    })
}

fn define(tool: SkillTool, description: String, input_schema: Value) -> ToolDefinition {
    ToolDefinition { name: tool.name().to_owned(), description, input_schema }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_name_the_skills() {
        let options = SkillToolOptions {
            skills: vec!["log-analyzer", "sales-report"],
            with_scripts: vec!["sales-report"],
            max_active: 8,
            delivery: SkillDelivery::Instructions,
        };
        insta::assert_snapshot!(serde_json::to_string_pretty(&skill_tool_definitions(&options)).unwrap());
        let result = SkillToolOptions { delivery: SkillDelivery::Result, ..options.clone() };
        let load = &skill_tool_definitions(&result)[0].description;
        assert!(load.contains("The result holds their instructions."), "{load}");
        assert_eq!(skill_tool_definitions(&options)[1..], skill_tool_definitions(&result)[1..]);
    }

    #[test]
    fn without_scripts_no_tool_runs_them_and_without_skills_there_is_no_tool() {
        let mut options = SkillToolOptions { skills: vec!["pdf"], ..SkillToolOptions::default() };
        assert_eq!(skill_tool_definitions(&options).len(), 3);
        options.skills.clear();
        assert!(skill_tool_definitions(&options).is_empty());
    }

    #[test]
    fn tools_are_found_by_name_with_a_dot_or_an_underscore() {
        for tool in SkillTool::ALL {
            assert_eq!(SkillTool::from_name(tool.name()), Some(tool));
            assert_eq!(SkillTool::from_wire_name(tool.name()), Some(tool));
        }
        assert_eq!(SkillTool::from_name("skills.run_script"), Some(SkillTool::RunScript));
        assert_eq!(SkillTool::from_wire_name("skills.run_script"), None);
        assert_eq!(SkillTool::from_name("skills_run.script"), None);
        assert_eq!(SkillTool::from_name("skills"), None);
    }
}
