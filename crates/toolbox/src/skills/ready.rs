//! Whether a skill can run where it is loaded: its manifest, held against the session's inputs and its sandbox, before the model
//! relies on it (ADR-002).

use std::sync::Arc;

use conjure_prompt::SessionSkill;
use conjure_skill::{Inputs, Preflight, Severity};

use super::error::SkillCallError;
use super::{SkillCall, SkillTools};
use crate::probe::SandboxProbe;

impl SkillTools {
    /// Refuses a skill to which something is missing that its manifest asks for, and names all of it. One without a manifest asks for
    /// nothing; nor is one looked at whose host does not say which inputs there are.
    pub(super) async fn check_ready(
        &self,
        skill: &SessionSkill,
        call: &SkillCall<'_>,
    ) -> Result<(), SkillCallError> {
        let (Some(given), Some(executor)) = (&self.inputs, call.executor) else { return Ok(()) };
        let Some(manifest) = skill.skill().manifest() else { return Ok(()) };
        // Those of other skills are none of its business.
        let own = given.iter().filter(|(name, _)| manifest.input(name).is_some());
        let own: Inputs = own.map(|(name, value)| (name.clone(), value.clone())).collect();
        let probe = SandboxProbe::new(executor, Arc::clone(call.clock), skill.skill());
        let report = Preflight::new(skill.skill(), &own).run(&probe).await;
        let findings = report.rules().iter().flat_map(|rule| &rule.findings);
        let missing: Vec<String> = findings
            .filter(|finding| finding.severity == Severity::Error)
            .map(|finding| format!("- {}", finding.message))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(SkillCallError::NotReady { name: skill.name().to_owned(), missing: missing.join("\n") })
    }
}
