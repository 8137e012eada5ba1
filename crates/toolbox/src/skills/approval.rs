//! Which calls are pre-approved and which need confirmation: grants of the session, `allowed-tools` of active skills, and manifests.
//!
//! The [`Approver`](crate::Approver) decides first, and its denial is final. Its request to ask is skipped if a person has granted such
//! calls, or if an active skill's `allowed-tools` covers them and the policy honours that. A call that it allows still needs
//! confirmation if the script is destructive or interactive.

use std::sync::Arc;

use conjure_conversation::{GrantScope, PinnedSkill, SessionView, ToolCall};
use conjure_prompt::{BuiltinTool, SessionSkill, SkillTool};
use conjure_skill::{AllowRule, AllowedTools, Destructive};
use serde_json::Value;

use super::request::{Script, SkillRequest};
use super::skill_tools::{AllowedToolsPolicy, SkillTools, execution};
use crate::text::quote;

/// Whether a grant of the session covers this call. A grant for one skill does not cover another skill's scripts.
pub(crate) fn is_granted(call: &ToolCall, request: Option<&SkillRequest>, standing: &SessionView) -> bool {
    let subject = rule_subject(call);
    standing.grants().any(|grant| {
        let is_its_own = match (&grant.scope, request) {
            (GrantScope::Skill(pinned), Some(SkillRequest::RunScript(script))) => {
                pinned_of(script, standing) == Some(pinned)
            }
            _ => true,
        };
        is_its_own
            && grant.rule.parse::<AllowRule>().is_ok_and(|rule| rule_matches(&rule, call, subject.as_deref()))
    })
}

impl SkillTools {
    /// Whether an active skill's `allowed-tools` cover this call, if they count.
    pub(crate) fn is_allowed(
        &self,
        call: &ToolCall,
        request: Option<&SkillRequest>,
        standing: &SessionView,
    ) -> bool {
        if self.allowed_tools == AllowedToolsPolicy::Ignore {
            return false;
        }
        let subject = rule_subject(call);
        let target = match request {
            Some(SkillRequest::RunScript(script)) => match self.target_skill(script, standing) {
                // The script's skill is unknown.
                None => return false,
                target => target,
            },
            _ => None,
        };
        standing.active_skills().iter().filter_map(|pinned| self.skills.recorded(pinned)).any(|skill| {
            // A skill does not cover another skill's scripts.
            let is_its_own = target.is_none_or(|target| target.name() == skill.name());
            is_its_own && !is_sensitive(skill) && {
                let (allowed, _) = AllowedTools::parse(skill.skill().allowed_tools().unwrap_or_default());
                allowed.rules().iter().any(|rule| rule_matches(rule, call, subject.as_deref()))
            }
        })
    }

    /// Why a person should confirm this call, if so.
    pub(crate) fn confirmation_reason(
        &self,
        request: &SkillRequest,
        standing: &SessionView,
    ) -> Option<String> {
        let SkillRequest::RunScript(script) = request else { return None };
        let Some(skill) = self.target_skill(script, standing) else {
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

    /// The skill whose script a call runs. A named skill need not be active yet: an earlier call of the same response may load it, and
    /// all calls of a response are approved before any of them runs.
    fn target_skill(&self, script: &Script, standing: &SessionView) -> Option<&Arc<SessionSkill>> {
        let active = self.find_active(script.skill.as_deref(), standing).ok();
        active.or_else(|| self.skills.get(script.skill.as_deref()?))
    }
}

/// The active skill whose script a call runs: the named one, else the most recent.
pub(super) fn pinned_of<'s>(script: &Script, standing: &'s SessionView) -> Option<&'s PinnedSkill> {
    match &script.skill {
        Some(name) => standing.active_skill(name),
        None => standing.active_skills().last(),
    }
}

fn is_sensitive(skill: &SessionSkill) -> bool {
    skill.skill().manifest().is_some_and(conjure_skill::Manifest::sensitive)
}

fn rule_matches(rule: &AllowRule, call: &ToolCall, subject: Option<&str>) -> bool {
    // Rules may use the names of the specification, which contain a dot.
    let same = || SkillTool::from_name(rule.tool()).zip(SkillTool::from_wire_name(&call.name));
    match same() {
        Some((ruled, called)) if ruled == called => rule.matches(rule.tool(), subject),
        _ => rule.matches(&call.name, subject),
    }
}

/// The subject of a call for rule patterns: a command line, or a path. A script call with environment variables has none, because
/// variables such as `PATH`, `LD_PRELOAD` and `PYTHONPATH` decide which code runs.
fn rule_subject(call: &ToolCall) -> Option<String> {
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
