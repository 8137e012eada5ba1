//! Grants of the session: which calls a person has approved in advance. They cover the calls of every tool.

use conjure_conversation::{GrantScope, PinnedSkill, SessionView, ToolCall};
use conjure_prompt::{BuiltinTool, SkillTool};
use conjure_skill::AllowRule;
use serde_json::Value;

use crate::skills::{Script, SkillRequest};

/// Whether a grant of the session covers this call. A grant for one skill does not cover another skill's scripts.
pub(crate) fn is_granted(
    call: &ToolCall,
    request: Option<&SkillRequest>,
    session_view: &SessionView,
) -> bool {
    let subject = rule_subject(call);
    session_view.grants().any(|grant| {
        let covers_call = match (&grant.scope, request) {
            (GrantScope::Skill(pinned), Some(SkillRequest::RunScript(script))) => {
                target_skill(script, session_view) == Some(pinned)
            }
            _ => true,
        };
        covers_call
            && grant.rule.parse::<AllowRule>().is_ok_and(|rule| rule_matches(&rule, call, subject.as_deref()))
    })
}

/// The active skill whose script a call runs: the named one, else the most recent.
fn target_skill<'s>(script: &Script, session_view: &'s SessionView) -> Option<&'s PinnedSkill> {
    match &script.skill {
        Some(name) => session_view.active_skill(name),
        None => session_view.active_skills().last(),
    }
}

/// Whether a rule covers a call with this subject.
pub(crate) fn rule_matches(rule: &AllowRule, call: &ToolCall, subject: Option<&str>) -> bool {
    // Rules may use the names of the specification, which contain a dot.
    let same = || SkillTool::from_name(rule.tool()).zip(SkillTool::from_wire_name(&call.name));
    match same() {
        Some((ruled, called)) if ruled == called => rule.matches(rule.tool(), subject),
        _ => rule.matches(&call.name, subject),
    }
}

/// The subject of a call for rule patterns: a command line, or a path. A script call with environment variables has none, because
/// variables such as `PATH`, `LD_PRELOAD` and `PYTHONPATH` decide which code runs.
pub(crate) fn rule_subject(call: &ToolCall) -> Option<String> {
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
