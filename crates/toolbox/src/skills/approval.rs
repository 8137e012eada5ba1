//! What need not be asked for, and what must be: the grants of a session, the `allowed-tools` of its active skills, and what a manifest
//! says of scripts.
//!
//! All of it stands behind the [`Approver`](crate::Approver). What that denies is denied. What it wants asked is allowed where a person
//! granted such calls, or an active skill's `allowed-tools` speaks of them and the host lets that count. What it allows is asked for
//! nevertheless where a script changes what was there before, or wants to be answered.

use std::sync::Arc;

use conjure_conversation::{GrantScope, PinnedSkill, Standing, ToolCall};
use conjure_prompt::{BuiltinTool, SessionSkill, SkillTool};
use conjure_skill::{AllowRule, AllowedTools, Destructive, Execution};
use serde_json::Value;

use super::SkillTools;
use super::request::{Script, SkillRequest};
use crate::text::quote;

/// Whether the `allowed-tools` of an active skill stand for an answer of a person's.
///
/// A skill is somebody's text. One that is loaded because its description fits would, if it counted, choose by itself what nobody is
/// asked about. So it counts only where a host says that whoever put the skill there has looked at it. The skills of a folder that is
/// not trusted ([`Trust`](conjure_skill::Trust)) are not there at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AllowedToolsPolicy {
    /// They do not: a person is asked, and may grant the same.
    #[default]
    Ignore,
    /// They do, but for those of a skill whose manifest says that it is sensitive.
    Honour,
}

/// Whether a rule of a person's, kept by the session, speaks of this call. One that holds for a skill does not speak of another's
/// scripts.
pub(crate) fn is_granted(call: &ToolCall, request: Option<&SkillRequest>, standing: &Standing) -> bool {
    let subject = subject(call);
    standing.grants().any(|grant| {
        let is_its_own = match (&grant.scope, request) {
            (GrantScope::Skill(pinned), Some(SkillRequest::RunScript(script))) => {
                pinned_of(script, standing) == Some(pinned)
            }
            _ => true,
        };
        is_its_own
            && grant.rule.parse::<AllowRule>().is_ok_and(|rule| speaks_of(&rule, call, subject.as_deref()))
    })
}

impl SkillTools {
    /// Whether an active skill's `allowed-tools` speak of this call, where they count.
    pub(crate) fn is_allowed(
        &self,
        call: &ToolCall,
        request: Option<&SkillRequest>,
        standing: &Standing,
    ) -> bool {
        if self.allowed_tools == AllowedToolsPolicy::Ignore {
            return false;
        }
        let subject = subject(call);
        let target = match request {
            Some(SkillRequest::RunScript(script)) => match self.meant(script, standing) {
                // Nobody speaks for a script of which it is not known whose it is.
                None => return false,
                target => target,
            },
            _ => None,
        };
        standing.active_skills().iter().filter_map(|pinned| self.skills.recorded(pinned)).any(|skill| {
            // One skill does not speak of another's scripts.
            let is_its_own = target.is_none_or(|target| target.name() == skill.name());
            is_its_own && !is_sensitive(skill) && {
                let (allowed, _) = AllowedTools::parse(skill.skill().allowed_tools().unwrap_or_default());
                allowed.rules().iter().any(|rule| speaks_of(rule, call, subject.as_deref()))
            }
        })
    }

    /// Why a person should be asked before this runs; none where nothing speaks for it.
    pub(crate) fn caution(&self, request: &SkillRequest, standing: &Standing) -> Option<String> {
        let SkillRequest::RunScript(script) = request else { return None };
        let Some(skill) = self.meant(script, standing) else {
            return Some(format!(
                "the model wants to run `{}` of a skill that it does not name, and none is loaded yet",
                quote(&script.path)
            ));
        };
        let execution = execution(skill)?;
        let what = match (execution.destructive, execution.interactive) {
            (Destructive::Yes, _) => "change or delete what was there before",
            (_, true) => "want to be answered while they run",
            (_, false) => return None,
        };
        Some(format!(
            "the model wants to run `{}` of the skill `{}`, whose scripts {what}",
            quote(&script.path),
            skill.name()
        ))
    }

    /// The skill whose script a call wants to run. One that is named need not be active yet: an earlier call of the same answer may
    /// load it, and all calls of an answer are judged before any of them runs.
    fn meant(&self, script: &Script, standing: &Standing) -> Option<&Arc<SessionSkill>> {
        let active = self.chosen(script.skill.as_deref(), standing).ok();
        active.or_else(|| self.skills.get(script.skill.as_deref()?))
    }
}

/// The active skill whose script a call wants to run: the one that it names, else the most recent.
pub(super) fn pinned_of<'s>(script: &Script, standing: &'s Standing) -> Option<&'s PinnedSkill> {
    match &script.skill {
        Some(name) => standing.active_skill(name),
        None => standing.active_skills().last(),
    }
}

/// What a skill's manifest says of its scripts; none where it has none.
pub(super) fn execution(skill: &SessionSkill) -> Option<&Execution> {
    skill.skill().manifest().map(conjure_skill::Manifest::execution)
}

fn is_sensitive(skill: &SessionSkill) -> bool {
    skill.skill().manifest().is_some_and(conjure_skill::Manifest::sensitive)
}

fn speaks_of(rule: &AllowRule, call: &ToolCall, subject: Option<&str>) -> bool {
    // Also by the names of the specification, which have a dot.
    let same = || SkillTool::from_name(rule.tool()).zip(SkillTool::from_wire_name(&call.name));
    match same() {
        Some((ruled, called)) if ruled == called => rule.matches(rule.tool(), subject),
        _ => rule.matches(&call.name, subject),
    }
}

/// What a call is about, as rules speak of it: a command line, or a path. A script that is given variables is about more than its
/// path, since some of them (`PATH`, `LD_PRELOAD`, `PYTHONPATH`) say which code runs: no rule with a pattern speaks of it.
fn subject(call: &ToolCall) -> Option<String> {
    let field = match (BuiltinTool::from_name(&call.name), SkillTool::from_wire_name(&call.name)) {
        (Some(BuiltinTool::Bash), _) => "command",
        (Some(_), _) | (_, Some(SkillTool::Read | SkillTool::RunScript)) => "path",
        _ => return None,
    };
    let input = call.input_value();
    let has_variables = || match input.get("env") {
        None | Some(Value::Null) => false,
        Some(Value::Object(variables)) => !variables.is_empty(),
        Some(_) => true,
    };
    if SkillTool::from_wire_name(&call.name) == Some(SkillTool::RunScript) && has_variables() {
        return None;
    }
    input.get(field)?.as_str().map(str::to_owned)
}
