//! The preflight of a skill when it is loaded: checks its manifest against the session's inputs and sandbox (ADR-002).

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure_prompt::SessionSkill;
use conjure_skill::{Inputs, Manifest, Preflight, Severity, input_text, input_variable};

use super::error::SkillCallError;
use super::skill_tools::{SkillCallContext, SkillTools};
use crate::probe::SandboxProbe;

impl SkillTools {
    /// Refuses a skill if something that its manifest requires is missing, and lists all of it. Skipped without a manifest, without
    /// a sandbox, or without [`SkillTools::with_inputs`].
    pub(super) async fn preflight(
        &self,
        skill: &SessionSkill,
        call: &SkillCallContext<'_>,
    ) -> Result<(), SkillCallError> {
        let (Some(provided), Some(executor)) = (&self.inputs, call.executor) else { return Ok(()) };
        let Some(manifest) = skill.skill().manifest() else { return Ok(()) };
        let skill_inputs = inputs_for(manifest, provided);
        let probe = SandboxProbe::new(executor, Arc::clone(call.clock), skill.skill());
        let report = Preflight::new(skill.skill(), &skill_inputs).run(&probe).await;
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

    /// The environment variables for the default values of a skill's own inputs.
    pub(super) fn default_inputs(&self, skill: &SessionSkill) -> BTreeMap<String, String> {
        let (Some(provided), Some(manifest)) = (&self.inputs, skill.skill().manifest()) else {
            return BTreeMap::new();
        };
        let values = manifest.resolve_inputs(&inputs_for(manifest, provided));
        let skill_inputs = values.into_iter().filter(|(name, value)| provided.get(name) != Some(value));
        let skill_inputs = skill_inputs.map(|(name, value)| (input_variable(&name), input_text(&value)));
        // No variable can hold a NUL.
        skill_inputs.filter(|(_, text)| !text.contains('\0')).collect()
    }
}

/// The inputs that this skill's manifest declares.
fn inputs_for(manifest: &Manifest, provided: &Inputs) -> Inputs {
    let skill_inputs = provided.iter().filter(|(name, _)| manifest.input(name).is_some());
    skill_inputs.map(|(name, value)| (name.clone(), value.clone())).collect()
}
