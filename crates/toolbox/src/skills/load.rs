//! `skills.load` and `skills.unload`: change the list of active skills.

use std::sync::Arc;

use conjure_conversation::{PinnedSkill, ResultContent, SessionView, SkillDelivery};
use conjure_prompt::SessionSkill;
use conjure_sandbox::NetworkPolicy;
use conjure_skill::{Destructive, Properties, SkillError};
use serde::Serialize;

use super::error::{SkillCallError, message};
use super::request::{LoadMode, UnloadTarget};
use super::skill_tools::{DispatchOutcome, SkillCallContext, SkillTools, execution, run_blocking};
use crate::tool::ToolOutput;
use crate::toolbox::fits_limits;

/// The result for the model (runtime specification, "recommended minimal receipt").
#[derive(Serialize)]
struct LoadReceipt<'r> {
    active_skills: Vec<ActiveSkillEntry<'r>>,
    /// The requested skills that were active before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    already_active: Vec<&'r str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unloaded: Vec<&'r str>,
    /// Findings about the newly loaded skills.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<String>,
    note: &'static str,
}

/// One active skill and its location in the sandbox.
#[derive(Serialize)]
struct ActiveSkillEntry<'r> {
    name: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_dir: Option<String>,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    properties: Option<Properties<'r>>,
}

/// A skill that will be active.
struct SkillToLoad {
    pinned: PinnedSkill,
    skill: Arc<SessionSkill>,
    /// The size of its instructions.
    bytes: usize,
    is_new: bool,
}

impl SkillTools {
    pub(super) async fn load(
        &self,
        requested: Vec<Arc<SessionSkill>>,
        mode: LoadMode,
        call: &SkillCallContext<'_>,
    ) -> Result<DispatchOutcome, SkillCallError> {
        let before = call.session_view.active_skills().to_vec();
        let mut skills: Vec<Arc<SessionSkill>> = Vec::new();
        if mode == LoadMode::Add {
            // A skill that was removed meanwhile is dropped.
            skills.extend(before.iter().filter_map(|pinned| self.skills.recorded(pinned)).map(Arc::clone));
        }
        for skill in &requested {
            if skills.iter().all(|other| other.name() != skill.name()) {
                skills.push(Arc::clone(skill));
            }
        }
        if skills.len() > self.max_active {
            return Err(SkillCallError::TooMany { count: skills.len(), max: self.max_active });
        }
        let known = before.clone();
        let reading =
            run_blocking(move || skills.into_iter().map(|skill| read_skill(skill, &known)).collect());
        let to_load: Vec<SkillToLoad> = reading.await.unwrap_or_else(|| Ok(Vec::new()))?;
        let bytes = to_load.iter().map(|skill| skill.bytes).sum();
        // The limit of one result applies to both ways of delivery.
        let max = call.limits.text / 4 * 3;
        if bytes > max {
            return Err(SkillCallError::TooLong { bytes, max });
        }
        for skill in to_load.iter().filter(|skill| skill.is_new) {
            self.preflight(&skill.skill, call).await?;
        }
        let active: Vec<PinnedSkill> = to_load.iter().map(|skill| skill.pinned.clone()).collect();
        let is_requested = |name: &str| requested.iter().any(|skill| skill.name() == name);
        let already = to_load.iter().filter(|skill| !skill.is_new && is_requested(&skill.pinned.name));
        let has_new = to_load.iter().any(|skill| skill.is_new);
        let receipt = LoadReceipt {
            active_skills: to_load
                .iter()
                .map(|skill| self.entry(&skill.pinned, Some(&skill.skill)))
                .collect(),
            already_active: already.map(|skill| skill.pinned.name.as_str()).collect(),
            unloaded: removed_names(&before, &active),
            findings: to_load
                .iter()
                .filter(|skill| skill.is_new)
                .flat_map(|skill| self.findings(&skill.skill))
                .collect(),
            note: match (has_new, self.delivery) {
                (false, _) => "The requested skills are already loaded; their instructions are unchanged.",
                (true, SkillDelivery::Result) => {
                    "The instructions of the skills that were loaded now follow."
                }
                (true, _) => {
                    "From now on, the instructions of the active skills are in your top-level instructions, in <active_skills>."
                }
            },
        };
        let mut outcome = receipt.to_output();
        if self.delivery == SkillDelivery::Result {
            for skill in to_load.iter().filter(|skill| skill.is_new) {
                let text = self
                    .skills
                    .active_skill(&skill.skill)
                    .map_err(|error| unreadable_skill(&skill.skill, &error))?;
                outcome.content.push(ResultContent::Text { text });
            }
        }
        // The receipt must fit too: only then has the model seen all instructions of each active skill.
        fits_limits(&outcome.content, call.limits, call.redactor)
            .map_err(|(bytes, max)| SkillCallError::TooLong { bytes, max })?;
        Ok(DispatchOutcome { active: (active != before).then_some(active), ..outcome.into() })
    }

    pub(super) fn unload(
        &self,
        which: &UnloadTarget,
        session_view: &SessionView,
    ) -> Result<DispatchOutcome, SkillCallError> {
        let before = session_view.active_skills();
        let is_kept = |skill: &&PinnedSkill| match which {
            UnloadTarget::All => false,
            UnloadTarget::Named(names) => !names.contains(&skill.name),
        };
        let active: Vec<PinnedSkill> = before.iter().filter(is_kept).cloned().collect();
        let unloaded = removed_names(before, &active);
        let receipt = LoadReceipt {
            active_skills: active
                .iter()
                .map(|pinned| self.entry(pinned, self.skills.recorded(pinned)))
                .collect(),
            already_active: Vec::new(),
            findings: Vec::new(),
            note: match (unloaded.is_empty(), self.delivery) {
                (true, _) => "None of these skills was loaded, so nothing was changed.",
                (false, SkillDelivery::Result) => {
                    "Do not follow the instructions of the unloaded skills any more."
                }
                (false, _) => {
                    "The instructions of the unloaded skills are not in your top-level instructions any more."
                }
            },
            unloaded,
        };
        let outcome = receipt.to_output();
        Ok(DispatchOutcome { active: (active != before).then_some(active), ..outcome.into() })
    }

    /// Requirements of a skill's scripts that the model must know about.
    fn findings(&self, skill: &SessionSkill) -> Vec<String> {
        let Some(execution) = execution(skill) else { return Vec::new() };
        let name = skill.name();
        let mut findings = Vec::new();
        if execution.network && self.network == Some(NetworkPolicy::None) {
            findings.push(format!(
                "`{name}` needs the network, and the sandbox has no network access: what needs it will fail"
            ));
        }
        if execution.interactive {
            findings.push(format!(
                "scripts of `{name}` ask for input while they run, and no user can answer: pass all answers as arguments"
            ));
        }
        if execution.destructive == Destructive::Yes {
            findings.push(format!(
                "scripts of `{name}` change or delete existing data: run one only if the user wants that"
            ));
        }
        findings
    }

    fn entry<'r>(
        &self,
        pinned: &'r PinnedSkill,
        skill: Option<&'r Arc<SessionSkill>>,
    ) -> ActiveSkillEntry<'r> {
        let shown = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
        ActiveSkillEntry {
            name: &pinned.name,
            location: skill.and_then(|skill| self.skills.location(skill)).map(shown),
            root_dir: skill.and_then(|skill| self.skills.root_dir(skill)).map(shown),
            digest: pinned.digest.to_string(),
            properties: skill.map(|skill| skill.skill().properties()),
        }
    }
}

impl LoadReceipt<'_> {
    fn to_output(&self) -> ToolOutput {
        // Strings and lists always serialize.
        ToolOutput::text(serde_json::to_string(self).unwrap_or_default())
    }
}

/// Reads a skill that will be active.
fn read_skill(skill: Arc<SessionSkill>, before: &[PinnedSkill]) -> Result<SkillToLoad, SkillCallError> {
    let read = || Ok((skill.pinned_ref()?, skill.body()?.len()));
    let (pinned, bytes) = read().map_err(|error| unreadable_skill(&skill, &error))?;
    // List the files here, where blocking is allowed.
    skill.files();
    let is_new = !before.contains(&pinned);
    Ok(SkillToLoad { pinned, skill, bytes, is_new })
}

fn unreadable_skill(skill: &SessionSkill, error: &SkillError) -> SkillCallError {
    tracing::warn!(skill = skill.name(), %error, "a skill cannot be loaded");
    SkillCallError::Unreadable { name: skill.name().to_owned(), reason: message(error.kind()) }
}

/// The names of skills that are no longer active.
fn removed_names<'b>(before: &'b [PinnedSkill], active: &[PinnedSkill]) -> Vec<&'b str> {
    let was_unloaded = |skill: &&PinnedSkill| active.iter().all(|other| other.name != skill.name);
    before.iter().filter(was_unloaded).map(|skill| skill.name.as_str()).collect()
}
