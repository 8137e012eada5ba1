//! `skills.load` and `skills.unload`: which skills are active from now on, and the receipt for it.

use std::sync::Arc;

use conjure_conversation::{Delivery, PinnedSkill, ResultContent, Standing};
use conjure_prompt::SessionSkill;
use conjure_sandbox::NetworkPolicy;
use conjure_skill::{Destructive, Properties, SkillError};
use serde::Serialize;

use super::approval::execution;
use super::error::{SkillCallError, in_words};
use super::request::{LoadMode, Unloaded};
use super::{SkillCall, SkillOutcome, SkillTools, blocking};
use crate::tool::ToolOutcome;
use crate::toolbox::fits;

/// What the model is told that it has now (runtime specification, "recommended minimal receipt").
#[derive(Serialize)]
struct Receipt<'r> {
    active_skills: Vec<Entry<'r>>,
    /// Of those that were asked for, the ones that were active before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    already_active: Vec<&'r str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unloaded: Vec<&'r str>,
    /// What should be known of the skills that were loaded now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<String>,
    note: &'static str,
}

/// One active skill, where the sandbox has it.
#[derive(Serialize)]
struct Entry<'r> {
    name: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_dir: Option<String>,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    properties: Option<Properties<'r>>,
}

/// A skill that is to be active.
struct Wanted {
    pinned: PinnedSkill,
    skill: Arc<SessionSkill>,
    /// Of its instructions.
    bytes: usize,
    is_new: bool,
}

impl SkillTools {
    pub(super) async fn load(
        &self,
        asked: Vec<Arc<SessionSkill>>,
        mode: LoadMode,
        call: &SkillCall<'_>,
    ) -> Result<SkillOutcome, SkillCallError> {
        let before = call.standing.active_skills().to_vec();
        let mut skills: Vec<Arc<SessionSkill>> = Vec::new();
        if mode == LoadMode::Add {
            // What is not there any more is not kept up.
            skills.extend(before.iter().filter_map(|pinned| self.skills.recorded(pinned)).map(Arc::clone));
        }
        for skill in &asked {
            if skills.iter().all(|other| other.name() != skill.name()) {
                skills.push(Arc::clone(skill));
            }
        }
        if skills.len() > self.most_active {
            return Err(SkillCallError::TooMany { wanted: skills.len(), most: self.most_active });
        }
        let known = before.clone();
        let reading = blocking(move || skills.into_iter().map(|skill| wanted(skill, &known)).collect());
        let wanted: Vec<Wanted> = reading.await.unwrap_or_else(|| Ok(Vec::new()))?;
        let bytes = wanted.iter().map(|wanted| wanted.bytes).sum();
        // As much as one result holds, whichever way they are delivered.
        let most = call.limits.text / 4 * 3;
        if bytes > most {
            return Err(SkillCallError::TooLong { bytes, most });
        }
        for wanted in wanted.iter().filter(|wanted| wanted.is_new) {
            self.check_ready(&wanted.skill, call).await?;
        }
        let active: Vec<PinnedSkill> = wanted.iter().map(|wanted| wanted.pinned.clone()).collect();
        let is_asked = |name: &str| asked.iter().any(|skill| skill.name() == name);
        let already = wanted.iter().filter(|wanted| !wanted.is_new && is_asked(&wanted.pinned.name));
        let has_new = wanted.iter().any(|wanted| wanted.is_new);
        let receipt = Receipt {
            active_skills: wanted
                .iter()
                .map(|wanted| self.entry(&wanted.pinned, Some(&wanted.skill)))
                .collect(),
            already_active: already.map(|wanted| wanted.pinned.name.as_str()).collect(),
            unloaded: gone(&before, &active),
            findings: wanted
                .iter()
                .filter(|wanted| wanted.is_new)
                .flat_map(|wanted| self.findings(&wanted.skill))
                .collect(),
            note: match (has_new, self.delivery) {
                (false, _) => "What was asked for was loaded already; its instructions are what they were.",
                (true, Delivery::Result) => "The instructions of the skills that were loaded now follow.",
                (true, _) => {
                    "From now on, the instructions of the active skills are in your top-level instructions, in <active_skills>."
                }
            },
        };
        let mut outcome = receipt.outcome();
        if self.delivery == Delivery::Result {
            for wanted in wanted.iter().filter(|wanted| wanted.is_new) {
                let text = self
                    .skills
                    .active_skill(&wanted.skill)
                    .map_err(|error| unreadable(&wanted.skill, &error))?;
                outcome.content.push(ResultContent::Text { text });
            }
        }
        // With all that is told of them: what is active was told in full.
        fits(&outcome.content, call.limits, call.redactor)
            .map_err(|(bytes, most)| SkillCallError::TooLong { bytes, most })?;
        Ok(SkillOutcome { active: (active != before).then_some(active), ..outcome.into() })
    }

    pub(super) fn unload(
        &self,
        which: &Unloaded,
        standing: &Standing,
    ) -> Result<SkillOutcome, SkillCallError> {
        let before = standing.active_skills();
        let stays = |skill: &&PinnedSkill| match which {
            Unloaded::All => false,
            Unloaded::These(names) => !names.contains(&skill.name),
        };
        let active: Vec<PinnedSkill> = before.iter().filter(stays).cloned().collect();
        let unloaded = gone(before, &active);
        let receipt = Receipt {
            active_skills: active
                .iter()
                .map(|pinned| self.entry(pinned, self.skills.recorded(pinned)))
                .collect(),
            already_active: Vec::new(),
            findings: Vec::new(),
            note: match (unloaded.is_empty(), self.delivery) {
                (true, _) => "None of these skills was loaded, so nothing was changed.",
                (false, Delivery::Result) => {
                    "Do not follow the instructions of the unloaded skills any more."
                }
                (false, _) => {
                    "The instructions of the unloaded skills are not in your top-level instructions any more."
                }
            },
            unloaded,
        };
        let outcome = receipt.outcome();
        Ok(SkillOutcome { active: (active != before).then_some(active), ..outcome.into() })
    }

    /// What a skill's manifest says of its scripts that does not go by itself here.
    fn findings(&self, skill: &SessionSkill) -> Vec<String> {
        let Some(execution) = execution(skill) else { return Vec::new() };
        let name = skill.name();
        let mut findings = Vec::new();
        if execution.network && self.network == Some(NetworkPolicy::None) {
            findings.push(format!(
                "`{name}` needs the network, and the sandbox reaches nothing: what needs it will fail"
            ));
        }
        if execution.interactive {
            findings.push(format!(
                "scripts of `{name}` want to be answered while they run, and nobody is there: give them all answers by arguments"
            ));
        }
        if execution.destructive == Destructive::Yes {
            findings.push(format!(
                "scripts of `{name}` change or delete what was there before: run one only if that is what the user wants"
            ));
        }
        findings
    }

    fn entry<'r>(&self, pinned: &'r PinnedSkill, skill: Option<&'r Arc<SessionSkill>>) -> Entry<'r> {
        let shown = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
        Entry {
            name: &pinned.name,
            location: skill.and_then(|skill| self.skills.location(skill)).map(shown),
            root_dir: skill.and_then(|skill| self.skills.root_dir(skill)).map(shown),
            digest: pinned.digest.to_string(),
            properties: skill.map(|skill| skill.skill().properties()),
        }
    }
}

impl Receipt<'_> {
    fn outcome(&self) -> ToolOutcome {
        // Texts in lists: nothing in here can fail to be JSON.
        ToolOutcome::text(serde_json::to_string(self).unwrap_or_default())
    }
}

/// Reads what must be known of a skill that is to be active.
fn wanted(skill: Arc<SessionSkill>, before: &[PinnedSkill]) -> Result<Wanted, SkillCallError> {
    let read = || Ok((skill.pin()?, skill.body()?.len()));
    let (pinned, bytes) = read().map_err(|error| unreadable(&skill, &error))?;
    // Listed here, where that may take its time.
    skill.files();
    let is_new = !before.contains(&pinned);
    Ok(Wanted { pinned, skill, bytes, is_new })
}

fn unreadable(skill: &SessionSkill, error: &SkillError) -> SkillCallError {
    tracing::warn!(skill = skill.name(), %error, "a skill cannot be loaded");
    SkillCallError::Unreadable { name: skill.name().to_owned(), reason: in_words(error.kind()) }
}

/// The names of those that were active and are not any more.
fn gone<'b>(before: &'b [PinnedSkill], active: &[PinnedSkill]) -> Vec<&'b str> {
    let is_gone = |skill: &&PinnedSkill| active.iter().all(|other| other.name != skill.name);
    before.iter().filter(is_gone).map(|skill| skill.name.as_str()).collect()
}
