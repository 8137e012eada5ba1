//! Parsed calls of the runtime tools. Parsing does not depend on which skills are active.

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure_artifact::ArtifactUri;
use conjure_conversation::{CallConcurrency, CallTraits};
use conjure_prompt::{SessionSkill, SkillTool};
use conjure_skill::{Destructive, Execution, closest_match};
use serde_json::Value;

use super::skill_tools::{SkillTools, execution};
use crate::text::quote;
use crate::tool_input::{InputFields, MAX_ARGUMENT_BYTES, without_zero};

/// Limits of one call: skill names, script arguments, total bytes of arguments, and environment variables.
const MAX_NAMES: usize = 256;
const MAX_ARGUMENTS: usize = 1000;
const MAX_TOTAL_ARGUMENT_BYTES: usize = 1024 * 1024;
const MAX_VARIABLES: usize = 100;

/// The prefix of environment variables that only Conjure sets.
const RESERVED_PREFIX: &str = "CONJURE_";

/// A call of a runtime tool with a checked input.
#[derive(Debug, Clone)]
pub(crate) enum SkillRequest {
    /// Makes these skills active, without duplicates.
    Load { skills: Vec<Arc<SessionSkill>>, mode: LoadMode },
    /// Makes skills inactive.
    Unload(UnloadTarget),
    /// Reads a file.
    Read { skill: Option<String>, path: String },
    /// Runs a script.
    RunScript(Script),
}

/// Whether loading replaces the active skills or adds to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadMode {
    Replace,
    Add,
}

/// Which skills are unloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnloadTarget {
    All,
    Named(Vec<String>),
}

/// A script to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) skill: Option<String>,
    pub(crate) path: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) workdir: Option<String>,
    /// The `execution` section of the named skill's manifest.
    pub(crate) execution: Option<Execution>,
}

impl SkillRequest {
    /// Parses an input. The error says what is wrong and how to mend it.
    pub(crate) fn parse(tool: SkillTool, input: &Value, tools: &SkillTools) -> Result<Self, String> {
        let fields = InputFields::from_value(input)?;
        Ok(match tool {
            SkillTool::Load => {
                let names = fields.optional_texts("names", MAX_NAMES)?.unwrap_or_default();
                if names.is_empty() {
                    return Err(format!(
                        "field `names` is missing or empty: name the skills to load; `{}` unloads",
                        SkillTool::Unload.name()
                    ));
                }
                let mode = match fields.optional_text("mode")? {
                    None | Some("replace") => LoadMode::Replace,
                    Some("add") => LoadMode::Add,
                    Some(other) => {
                        return Err(format!(
                            "field `mode` must be \"replace\" or \"add\", not \"{}\"",
                            quote(other)
                        ));
                    }
                };
                let mut skills: Vec<Arc<SessionSkill>> = Vec::with_capacity(names.len());
                for name in names {
                    let skill = tools.skills.find(name).ok_or_else(|| tools.unknown(name))?;
                    if skills.iter().all(|other| other.name() != skill.name()) {
                        skills.push(Arc::clone(skill));
                    }
                }
                Self::Load { skills, mode }
            }
            SkillTool::Unload => match (fields.boolean("all")?, fields.optional_texts("names", MAX_NAMES)?) {
                (true, _) => Self::Unload(UnloadTarget::All),
                (false, Some(names)) if !names.is_empty() => {
                    let name = |name: &str| match tools.skills.find(name) {
                        Some(skill) => skill.name().to_owned(),
                        // An unknown name is not loaded, so there is nothing to do.
                        None => name.to_owned(),
                    };
                    Self::Unload(UnloadTarget::Named(names.into_iter().map(name).collect()))
                }
                (false, _) => {
                    return Err(
                        "name the skills to unload in field `names`, or set field `all` to true".to_owned()
                    );
                }
            },
            SkillTool::Read => {
                let (skill, path) = tools.skill_and_path(&fields)?;
                Self::Read { skill, path }
            }
            SkillTool::RunScript => {
                let (skill, path) = tools.skill_and_path(&fields)?;
                if ArtifactUri::is_reference(&path) {
                    return Err(format!(
                        "field `path` is `{}`, and only a file of a skill is run: give it relative to the skill's directory, and \
                         other files as arguments",
                        quote(&path)
                    ));
                }
                Self::RunScript(Script {
                    execution: tools.execution(skill.as_deref()),
                    skill,
                    path,
                    args: arguments(&fields)?,
                    env: variables(&fields)?,
                    workdir: match fields.optional_text("workdir")? {
                        None => None,
                        Some(dir) => Some(without_zero("workdir", dir)?.to_owned()),
                    },
                })
            }
        })
    }

    /// How the call may be scheduled. Reading runs concurrently. Loading and unloading are barriers, because they change what later
    /// calls may do; they are idempotent. A script runs concurrently only if its manifest says that it is not destructive. A script
    /// without a manifest is a barrier and is never repeated.
    pub(crate) const fn traits(&self) -> CallTraits {
        match self {
            Self::Load { .. } | Self::Unload(_) => {
                CallTraits { concurrency: CallConcurrency::Exclusive, idempotent: true }
            }
            Self::Read { .. } => CallTraits { concurrency: CallConcurrency::Shared, idempotent: true },
            Self::RunScript(Script { execution, .. }) => match execution {
                Some(Execution { destructive: Destructive::No, idempotent, .. }) => {
                    CallTraits { concurrency: CallConcurrency::Shared, idempotent: *idempotent }
                }
                Some(Execution { idempotent, .. }) => {
                    CallTraits { concurrency: CallConcurrency::Exclusive, idempotent: *idempotent }
                }
                None => CallTraits { concurrency: CallConcurrency::Exclusive, idempotent: false },
            },
        }
    }
}

impl SkillTools {
    /// The skill that a call names. It must be one of the session's.
    fn skill(&self, fields: &InputFields<'_>) -> Result<Option<String>, String> {
        match fields.optional_text("skill")? {
            None => Ok(None),
            Some(name) => match self.skills.find(name) {
                Some(skill) => Ok(Some(skill.name().to_owned())),
                None => Err(self.unknown(name)),
            },
        }
    }

    /// The named skill and the path in its directory. A `skill://` reference gives both.
    fn skill_and_path(&self, fields: &InputFields<'_>) -> Result<(Option<String>, String), String> {
        let (named, path) = (self.skill(fields)?, fields.path()?);
        let scheme = path.get(..8).unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("skill://") {
            return Ok((named, path.to_owned()));
        }
        let uri = ArtifactUri::parse(path).map_err(|error| format!("field `path`: {error}"))?;
        let ArtifactUri::Skill { skill, path } = uri else { return Ok((named, path.to_owned())) };
        let resolved_name = self.skills.find(&skill).ok_or_else(|| self.unknown(&skill))?.name().to_owned();
        if let Some(named) = named.filter(|named| *named != resolved_name) {
            return Err(format!(
                "field `skill` names `{named}`, and field `path` a file of `{resolved_name}`: leave one of them out"
            ));
        }
        Ok((Some(resolved_name), path.as_str().to_owned()))
    }

    /// The `execution` section of the manifest of the named skill, if there is one.
    fn execution(&self, named: Option<&str>) -> Option<Execution> {
        let skill = self.skills.get(named?)?;
        execution(skill).copied()
    }

    fn unknown(&self, name: &str) -> String {
        let quoted = quote(name);
        match closest_match(&quoted, self.skills.iter().map(|skill| skill.name())) {
            Some(near) => format!("there is no skill `{quoted}`; did you mean `{near}`?"),
            None => {
                const MAX_LISTED: usize = 20;
                let known: Vec<String> =
                    self.skills.iter().take(MAX_LISTED).map(|skill| format!("`{}`", skill.name())).collect();
                let more = self.skills.iter().nth(MAX_LISTED).map_or("", |_| ", …");
                format!("there is no skill `{quoted}`; the skills are: {}{more}", known.join(", "))
            }
        }
    }
}

fn arguments(fields: &InputFields<'_>) -> Result<Vec<String>, String> {
    let args = fields.optional_texts("args", MAX_ARGUMENTS).map_err(|error| {
        format!("{error}; write long lists to a file with `create_file`, and give the script its path")
    })?;
    let args = args.unwrap_or_default();
    let total: usize = args.iter().map(|argument| argument.len() + 1).sum();
    if total > MAX_TOTAL_ARGUMENT_BYTES || args.iter().any(|argument| argument.len() > MAX_ARGUMENT_BYTES) {
        return Err(format!(
            "field `args` has {total} bytes, and the maximum is {MAX_TOTAL_ARGUMENT_BYTES}, {MAX_ARGUMENT_BYTES} for each argument: \
             write what is long to a file with `create_file`, and give the script its path"
        ));
    }
    args.into_iter().map(|argument| without_zero("args", argument).map(str::to_owned)).collect()
}

fn variables(fields: &InputFields<'_>) -> Result<BTreeMap<String, String>, String> {
    let env = fields.optional_map("env", MAX_VARIABLES)?;
    for (name, value) in &env {
        let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
        if !name.starts_with(is_start) || !name.chars().all(|c| is_start(c) || c.is_ascii_digit()) {
            return Err(format!(
                "field `env` has `{}`, which is not a valid variable name: use letters, digits and `_`",
                quote(name)
            ));
        }
        if name.starts_with(RESERVED_PREFIX) {
            return Err(format!(
                "field `env` sets `{}`: variables that begin with `{RESERVED_PREFIX}` are set for you",
                quote(name)
            ));
        }
        if value.len() > MAX_ARGUMENT_BYTES {
            return Err(format!(
                "the value of `{}` in field `env` has {} bytes, and the maximum is {MAX_ARGUMENT_BYTES}",
                quote(name),
                value.len()
            ));
        }
        without_zero("env", value)?;
    }
    Ok(env)
}
