//! Whether a skill can run where it is loaded: its manifest, held against the session's inputs and its sandbox, before the model
//! relies on it (ADR-002).

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure_prompt::SessionSkill;
use conjure_skill::{Inputs, Manifest, Preflight, Severity, input_text, input_variable};

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
        let own = of_skill(manifest, given);
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

    /// What a skill's scripts have of its inputs beside the session's variables: its own defaults, which are nobody else's.
    pub(super) fn own_inputs(&self, skill: &SessionSkill) -> BTreeMap<String, String> {
        let (Some(given), Some(manifest)) = (&self.inputs, skill.skill().manifest()) else {
            return BTreeMap::new();
        };
        let values = manifest.resolve_inputs(&of_skill(manifest, given));
        let own = values.into_iter().filter(|(name, value)| given.get(name) != Some(value));
        let own = own.map(|(name, value)| (input_variable(&name), input_text(&value)));
        // No variable can hold a NUL.
        own.filter(|(_, text)| !text.contains('\0')).collect()
    }
}

/// What was given for this skill: that of others is none of its business.
fn of_skill(manifest: &Manifest, given: &Inputs) -> Inputs {
    let own = given.iter().filter(|(name, _)| manifest.input(name).is_some());
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}
