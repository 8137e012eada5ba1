//! Which calls active skills pre-approve by `allowed-tools`, and which need confirmation by their manifests.
//!
//! The [`Approver`](crate::Approver) decides first, and its denial is final. Its request to ask is skipped if a person has granted such
//! calls, or if an active skill's `allowed-tools` covers them and the policy honours that. A call that it allows still needs
//! confirmation if the script is destructive or interactive.

use std::sync::Arc;

use conjure_conversation::{SessionView, ToolCall};
use conjure_prompt::SessionSkill;
use conjure_skill::{AllowedTools, Destructive};

use super::request::{Script, SkillRequest};
use super::skill_tools::{AllowedToolsPolicy, SkillTools, execution};
use crate::grant::{rule_matches, rule_subject};
use crate::text::quote;

impl SkillTools {
    /// Whether an active skill's `allowed-tools` cover this call, and the policy honours them.
    pub(crate) fn is_allowed(
        &self,
        call: &ToolCall,
        request: Option<&SkillRequest>,
        session_view: &SessionView,
    ) -> bool {
        if self.allowed_tools == AllowedToolsPolicy::Ignore {
            return false;
        }
        let subject = rule_subject(call);
        let target = match request {
            Some(SkillRequest::RunScript(script)) => match self.target_skill(script, session_view) {
                // The script's skill is unknown.
                None => return false,
                target => target,
            },
            _ => None,
        };
        session_view.active_skills().iter().filter_map(|pinned| self.skills.recorded(pinned)).any(|skill| {
            // A skill does not cover another skill's scripts.
            let applies = target.is_none_or(|target| target.name() == skill.name());
            applies && !is_sensitive(skill) && {
                let (allowed, _) = AllowedTools::parse(skill.skill().allowed_tools().unwrap_or_default());
                allowed.rules().iter().any(|rule| rule_matches(rule, call, subject.as_deref()))
            }
        })
    }

    /// The reason why a person should confirm this call, if there is one.
    pub(crate) fn confirmation_reason(
        &self,
        request: &SkillRequest,
        session_view: &SessionView,
    ) -> Option<String> {
        let SkillRequest::RunScript(script) = request else { return None };
        let Some(skill) = self.target_skill(script, session_view) else {
            return Some(format!(
                "the model wants to run `{}` of a skill that it does not name, and none is loaded yet",
                quote(&script.path)
            ));
        };
        let execution = execution(skill)?;
        let what = match (execution.destructive, execution.interactive) {
            (Destructive::Yes, _) => "change or delete existing data",
            (_, true) => "ask for input while they run",
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
    fn target_skill(&self, script: &Script, session_view: &SessionView) -> Option<&Arc<SessionSkill>> {
        let active = self.find_active(script.skill.as_deref(), session_view).ok();
        active.or_else(|| self.skills.get(script.skill.as_deref()?))
    }
}

fn is_sensitive(skill: &SessionSkill) -> bool {
    skill.skill().manifest().is_some_and(conjure_skill::Manifest::sensitive)
}
