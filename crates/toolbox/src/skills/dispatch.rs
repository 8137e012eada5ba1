//! Dispatches calls of the runtime tools.

use std::borrow::Cow;
use std::time::Duration;

use conjure_base::text::strip_deceptive;
use conjure_conversation::{ResultContent, SessionView};

use super::request::SkillRequest;
use super::skill_tools::{DispatchOutcome, MAX_SCRIPT_DURATION, SkillCallContext, SkillTools, execution};
use crate::tool::ToolOutput;

impl SkillTools {
    /// The timeout of this call from the skill's manifest, if it has one.
    pub(crate) fn script_timeout(
        &self,
        request: &SkillRequest,
        session_view: &SessionView,
    ) -> Option<Duration> {
        let SkillRequest::RunScript(script) = request else { return None };
        let skill = self.find_active(script.skill.as_deref(), session_view).ok()?;
        Some(execution(skill)?.timeout?.min(MAX_SCRIPT_DURATION))
    }

    /// Runs a call. A failure is a result too.
    ///
    /// What comes from the files of a skill, also from its metadata and file names, has no hidden text: who reviews the skill does not see it,
    /// so the model does not get it either. The output of scripts stays as it is.
    pub(crate) async fn run(&self, request: SkillRequest, call: SkillCallContext<'_>) -> DispatchOutcome {
        let is_script = matches!(request, SkillRequest::RunScript(_));
        let done = match request {
            SkillRequest::Load { skills, mode } => self.load(skills, mode, &call).await,
            SkillRequest::Unload(which) => self.unload(&which, &call.session_view),
            SkillRequest::Read { skill, path } => {
                self.read(skill.as_deref(), &path, &call).await.map(Into::into)
            }
            SkillRequest::RunScript(script) => self.run_script(script, &call).await.map(Into::into),
        };
        let mut done = done.unwrap_or_else(|error| ToolOutput::from(error).into());
        for part in &mut done.outcome.content {
            if let ResultContent::Text { text } = part
                && !is_script
                && let Cow::Owned(visible) = strip_deceptive(text)
            {
                *text = visible;
            }
        }
        done
    }
}
