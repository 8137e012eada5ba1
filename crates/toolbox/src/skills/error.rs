//! The errors of the runtime tools. The model reads the messages, which say what is wrong and how to mend it.

use conjure_prompt::SkillTool;
use conjure_skill::SkillErrorKind;

use crate::tool::{ToolOutput, ToolStatus};

/// Why a call of a runtime tool failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SkillCallError {
    #[error("no skill is loaded\nhint: load one with `{}` first", SkillTool::Load.name())]
    NothingLoaded,
    #[error("the skill `{name}` is not loaded; loaded is: {loaded}\nhint: load it with `{}` first", SkillTool::Load.name())]
    NotLoaded { name: String, loaded: String },
    #[error(
        "the skill `{name}` is loaded, but it is not there any more with the content that was loaded\nhint: load it again"
    )]
    SkillMissing { name: String },
    #[error(
        "it is unclear which skill's script to run, since another call of the same answer changed which skills are loaded, \
         so nothing was run\nhint: call again, and name the skill in field `skill`"
    )]
    AmbiguousSkill,
    #[error(
        "{count} skills would be loaded, and the maximum is {max}, so nothing was changed\nhint: load fewer skills, or unload \
         those that are not needed any more"
    )]
    TooMany { count: usize, max: usize },
    #[error(
        "the instructions of these skills, with their metadata, have {bytes} bytes, and the maximum is {max}, so nothing was changed\nhint: \
         load fewer skills at a time"
    )]
    TooLong { bytes: usize, max: usize },
    #[error("the skill `{name}` cannot be loaded, so nothing was changed: {reason}")]
    Unreadable { name: String, reason: &'static str },
    #[error(
        "the skill `{name}` cannot run here, so nothing was changed:\n{missing}\nhint: tell the user what is missing, or do without \
         this skill"
    )]
    NotReady { name: String, missing: String },
    #[error("path `{path}` is absolute\nhint: give it relative to the skill's directory{}", suggestion(.relative.as_deref()))]
    Absolute { path: String, relative: Option<String> },
    #[error(
        "path `{path}` leads out of the skill's directory\nhint: give it without `..`, relative to the skill's directory"
    )]
    EscapesSkillDir { path: String },
    #[error("the skill `{name}` has no file `{path}`{}", hint(.files))]
    NoFile { name: String, path: String, files: String },
    #[error("`{path}` of the skill `{name}` cannot be read: {reason}")]
    File { name: String, path: String, reason: String },
    #[error(
        "`{path}` of the skill `{name}` has {size} bytes, and the maximum is {max}\nhint: work on a part of it with `bash_tool`\
         {}", at(.command_path.as_deref())
    )]
    TooLarge { name: String, path: String, size: u64, max: u64, command_path: Option<String> },
    #[error("the sandbox does not have the directory of the skill `{name}`, so its scripts cannot be run")]
    NotInSandbox { name: String },
    #[error(
        "no known interpreter runs `{path}`: its extension is none of the known ones, it may not be executed, and its \
         first line names no interpreter (`#!`)\nhint: run it with `bash_tool`, by the program that it is for"
    )]
    NoInterpreter { path: String },
    #[error(
        "`{path}` needs `{interpreter}`, and the sandbox has none: {reason}\nhint: do without this script, or tell the user \
         that `{interpreter}` is missing"
    )]
    InterpreterMissing { path: String, interpreter: String, reason: String },
}

/// Describes the error for the model, without paths of this machine.
pub(super) const fn message(kind: SkillErrorKind) -> &'static str {
    match kind {
        SkillErrorKind::FileNotFound | SkillErrorKind::NotFound => "it is not there",
        SkillErrorKind::PathNotAllowed => "it is not a regular file within the skill's directory",
        SkillErrorKind::PermissionDenied => "the system refuses",
        SkillErrorKind::TooLarge => "it is too large",
        SkillErrorKind::InvalidFrontmatter => "its SKILL.md is not valid any more",
        _ => "the system reports an error",
    }
}

fn suggestion(relative: Option<&str>) -> String {
    relative.map_or_else(String::new, |relative| format!(": `{relative}`"))
}

fn at(command_path: Option<&str>) -> String {
    command_path.map_or_else(String::new, |command_path| format!(", which finds it at `{command_path}`"))
}

fn hint(files: &str) -> String {
    if files.is_empty() { String::new() } else { format!("\nhint: {files}") }
}

impl From<SkillCallError> for ToolOutput {
    fn from(error: SkillCallError) -> Self {
        Self::with_status(ToolStatus::Failed, error.to_string())
    }
}
