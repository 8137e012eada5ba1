//! What a call of a runtime tool asks for: its input, checked as far as that goes without knowing what is active.

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure_artifact::ArtifactUri;
use conjure_conversation::{Access, CallTraits};
use conjure_prompt::{SessionSkill, SkillTool};
use conjure_skill::{Destructive, Execution, nearest};
use serde_json::Value;

use super::SkillTools;
use super::approval::execution;
use crate::input::{Fields, LONGEST_ARGUMENT, without_zero};
use crate::text::quote;

/// The most names in one call, the most arguments of a script and bytes of all of them, and the most variables.
const MOST_NAMES: usize = 256;
const MOST_ARGUMENTS: usize = 1000;
const MOST_ARGUMENT_BYTES: usize = 1024 * 1024;
const MOST_VARIABLES: usize = 100;

/// Variables that only we set.
const OURS: &str = "CONJURE_";

/// A call of a runtime tool whose input was checked.
#[derive(Debug, Clone)]
pub(crate) enum SkillRequest {
    /// Makes these skills active. Each is there once.
    Load { skills: Vec<Arc<SessionSkill>>, mode: LoadMode },
    /// Makes skills inactive.
    Unload(Unloaded),
    /// Reads a file.
    Read { skill: Option<String>, path: String },
    /// Runs a script.
    RunScript(Script),
}

/// What becomes of the skills that were active before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadMode {
    Replace,
    Add,
}

/// Which skills are unloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unloaded {
    All,
    These(Vec<String>),
}

/// A script to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) skill: Option<String>,
    pub(crate) path: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) workdir: Option<String>,
    /// What the manifest of the skill says that it names.
    pub(crate) execution: Option<Execution>,
}

impl SkillRequest {
    /// The request of this input, or what is wrong with it.
    pub(crate) fn parse(tool: SkillTool, input: &Value, tools: &SkillTools) -> Result<Self, String> {
        let fields = Fields::of(input)?;
        Ok(match tool {
            SkillTool::Load => {
                let names = fields.optional_texts("names", MOST_NAMES)?.unwrap_or_default();
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
            SkillTool::Unload => match (fields.flag("all")?, fields.optional_texts("names", MOST_NAMES)?) {
                (true, _) => Self::Unload(Unloaded::All),
                (false, Some(names)) if !names.is_empty() => {
                    let name = |name: &str| match tools.skills.find(name) {
                        Some(skill) => skill.name().to_owned(),
                        // Whatever it is, it is not loaded afterwards.
                        None => name.to_owned(),
                    };
                    Self::Unload(Unloaded::These(names.into_iter().map(name).collect()))
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
                        "field `path` is `{}`, and only a file of a skill is run: give it relative to the skill's folder, and \
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
                        Some(folder) => Some(without_zero("workdir", folder)?.to_owned()),
                    },
                })
            }
        })
    }

    /// Reading is done beside others. Loading and unloading change what the calls behind them may do, so they are barriers; done
    /// twice they do what they do once. Of a script is known what the manifest of the skill says that the call names: it
    /// runs beside others only where that says itself that nothing is destroyed. One of which nothing is known is a barrier, and never
    /// run again by itself.
    pub(crate) const fn traits(&self) -> CallTraits {
        match self {
            Self::Load { .. } | Self::Unload(_) => CallTraits { access: Access::Exclusive, idempotent: true },
            Self::Read { .. } => CallTraits { access: Access::Shared, idempotent: true },
            Self::RunScript(Script { execution, .. }) => match execution {
                Some(Execution { destructive: Destructive::No, idempotent, .. }) => {
                    CallTraits { access: Access::Shared, idempotent: *idempotent }
                }
                Some(Execution { idempotent, .. }) => {
                    CallTraits { access: Access::Exclusive, idempotent: *idempotent }
                }
                None => CallTraits { access: Access::Exclusive, idempotent: false },
            },
        }
    }
}

impl SkillTools {
    /// The skill that a call names, which must be one of the session's.
    fn skill(&self, fields: &Fields<'_>) -> Result<Option<String>, String> {
        match fields.optional_text("skill")? {
            None => Ok(None),
            Some(name) => match self.skills.find(name) {
                Some(skill) => Ok(Some(skill.name().to_owned())),
                None => Err(self.unknown(name)),
            },
        }
    }

    /// The same, and the path in its folder. A reference to a file of a skill says both.
    fn skill_and_path(&self, fields: &Fields<'_>) -> Result<(Option<String>, String), String> {
        let (named, path) = (self.skill(fields)?, fields.path()?);
        let scheme = path.get(..8).unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("skill://") {
            return Ok((named, path.to_owned()));
        }
        let uri = ArtifactUri::parse(path).map_err(|error| format!("field `path`: {error}"))?;
        let ArtifactUri::Skill { skill, path } = uri else { return Ok((named, path.to_owned())) };
        let meant = self.skills.find(&skill).ok_or_else(|| self.unknown(&skill))?.name().to_owned();
        if let Some(named) = named.filter(|named| *named != meant) {
            return Err(format!(
                "field `skill` names `{named}`, and field `path` a file of `{meant}`: leave one of them out"
            ));
        }
        Ok((Some(meant), path.as_str().to_owned()))
    }

    /// What the manifest of the skill says that a call names; none where it names none, or has none.
    fn execution(&self, named: Option<&str>) -> Option<Execution> {
        let skill = self.skills.get(named?)?;
        execution(skill).copied()
    }

    fn unknown(&self, name: &str) -> String {
        let shown = quote(name);
        match nearest(&shown, self.skills.iter().map(|skill| skill.name())) {
            Some(near) => format!("there is no skill `{shown}`; did you mean `{near}`?"),
            None => {
                const MOST: usize = 20;
                let known: Vec<String> =
                    self.skills.iter().take(MOST).map(|skill| format!("`{}`", skill.name())).collect();
                let more = self.skills.iter().nth(MOST).map_or("", |_| ", …");
                format!("there is no skill `{shown}`; the skills are: {}{more}", known.join(", "))
            }
        }
    }
}

fn arguments(fields: &Fields<'_>) -> Result<Vec<String>, String> {
    let args = fields.optional_texts("args", MOST_ARGUMENTS).map_err(|error| {
        format!("{error}; write long lists to a file with `create_file`, and give the script its path")
    })?;
    let args = args.unwrap_or_default();
    let total: usize = args.iter().map(|argument| argument.len() + 1).sum();
    if total > MOST_ARGUMENT_BYTES || args.iter().any(|argument| argument.len() > LONGEST_ARGUMENT) {
        return Err(format!(
            "field `args` has {total} bytes, and the most is {MOST_ARGUMENT_BYTES}, {LONGEST_ARGUMENT} for each argument: \
             write what is long to a file with `create_file`, and give the script its path"
        ));
    }
    args.into_iter().map(|argument| without_zero("args", argument).map(str::to_owned)).collect()
}

fn variables(fields: &Fields<'_>) -> Result<BTreeMap<String, String>, String> {
    let env = fields.optional_map("env", MOST_VARIABLES)?;
    for (name, value) in &env {
        let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
        if !name.starts_with(is_start) || !name.chars().all(|c| is_start(c) || c.is_ascii_digit()) {
            return Err(format!(
                "field `env` has `{}`, which is no name of a variable: use letters, digits and `_`",
                quote(name)
            ));
        }
        if name.starts_with(OURS) {
            return Err(format!(
                "field `env` sets `{}`: variables that begin with `{OURS}` are set for you",
                quote(name)
            ));
        }
        if value.len() > LONGEST_ARGUMENT {
            return Err(format!(
                "the value of `{}` in field `env` has {} bytes, and the most is {LONGEST_ARGUMENT}",
                quote(name),
                value.len()
            ));
        }
        without_zero("env", value)?;
    }
    Ok(env)
}
