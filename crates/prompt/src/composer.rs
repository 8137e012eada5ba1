//! The composer of a session: produces everything that the model reads beside the messages.
//!
//! Everything except active skills and artifacts is built once. A request has the same bytes as the one before it, unless a skill
//! was loaded or unloaded, or an artifact changed. A crash loses nothing: the same skills and options give the same composer.

use std::sync::Arc;

use conjure_conversation::{
    Composer, PromptPrefix, SessionView, SkillActivation, SkillDelivery, ToolDefinition,
};
use conjure_skill::Skill;

use crate::artifact_section::ArtifactSection;
use crate::options::PromptOptions;
use crate::session_skills::SessionSkills;
use crate::skill_tools::SkillTool;
use crate::system_prompt::{ScriptTool, skills_fragment, static_sections};

/// Composes the system prompt and the tools. The prompt has this order: base prompt, environment, skills, instructions of active
/// skills, artifacts.
#[derive(Debug, Clone, Default)]
pub struct SkillComposer {
    static_part: PromptPrefix,
    active: ActiveSkillDelivery,
    artifacts: Option<ArtifactSection>,
}

/// How active skills' instructions are delivered.
#[derive(Debug, Clone, Default)]
enum ActiveSkillDelivery {
    /// The composer does not deliver them. The model reads them itself.
    #[default]
    None,
    /// In the results of the calls that loaded them.
    ToolResult(SessionSkills),
    /// In the system prompt, after the static part.
    SystemPrompt(SessionSkills),
}

impl SkillComposer {
    /// Creates the composer for these instructions and tools. The tools keep their order.
    ///
    /// It describes skills that the model reads with `view`. Options about loading only affect the wording here:
    /// [`SkillComposer::for_session`] also delivers the instructions of active skills.
    pub fn new<'s>(
        base_prompt: &str,
        skills: impl IntoIterator<Item = &'s Skill>,
        tools: impl Into<Arc<[ToolDefinition]>>,
        options: &PromptOptions,
    ) -> Self {
        let tools = tools.into();
        let run_script = SkillTool::RunScript.name();
        let scripts = if tools.iter().any(|tool| tool.name == run_script) {
            ScriptTool::Available
        } else {
            ScriptTool::None
        };
        let skills = skills_fragment(skills, options, scripts);
        let static_part = PromptPrefix { instructions: static_sections(base_prompt, options, skills), tools };
        Self { static_part, active: ActiveSkillDelivery::None, artifacts: None }
    }

    /// Creates the composer for a session with these skills.
    ///
    /// With [`SkillActivation::Load`] and [`SkillDelivery::Instructions`], the instructions of active skills follow in a section of
    /// their own. The artifacts of the session and the assets of its skills come last, if the options include them. In that case
    /// this function lists the files of the skills, which blocks if they were not listed before.
    pub fn for_session(
        base_prompt: &str,
        skills: &SessionSkills,
        tools: impl Into<Arc<[ToolDefinition]>>,
        options: &PromptOptions,
    ) -> Self {
        let plain = Self::new(base_prompt, skills.iter().map(|skill| &**skill.skill()), tools, options);
        let active = match (options.activation, options.delivery) {
            (SkillActivation::Load, SkillDelivery::Instructions) => {
                ActiveSkillDelivery::SystemPrompt(skills.clone())
            }
            (SkillActivation::Load, _) => ActiveSkillDelivery::ToolResult(skills.clone()),
            _ => ActiveSkillDelivery::None,
        };
        let artifacts = options.artifacts.clone().map(|prompt| {
            ArtifactSection::new(
                prompt,
                skills,
                plain.static_part.tools.iter().map(|tool| tool.name.as_str()),
            )
        });
        Self { active, artifacts, ..plain }
    }
}

impl Composer for SkillComposer {
    fn compose(&self, session: &SessionView) -> PromptPrefix {
        let mut prefix = self.static_part.clone();
        if let ActiveSkillDelivery::SystemPrompt(skills) = &self.active {
            let block = skills.active_skills_block(session);
            if !block.is_empty() {
                prefix.instructions.push(block);
            }
        }
        prefix.instructions.extend(self.artifacts.as_ref().and_then(|section| section.block(session)));
        prefix
    }

    /// The instructions of active skills that were delivered in results. A summary that replaces these results needs them.
    fn after_compaction(&self, session: &SessionView) -> Option<String> {
        match &self.active {
            ActiveSkillDelivery::ToolResult(skills) => {
                Some(skills.active_skills_block(session)).filter(|block| !block.is_empty())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin_tools::{ToolOptions, tool_definitions};

    #[test]
    fn the_base_prompt_comes_first_and_each_result_is_the_same() {
        let options = PromptOptions { workspace: Some("/workspace".into()), ..PromptOptions::default() };
        let composer =
            SkillComposer::new("Be brief.", [], tool_definitions(&ToolOptions::default()), &options);
        let (first, second) =
            (composer.compose(&SessionView::default()), composer.compose(&SessionView::default()));
        assert_eq!(first.instructions[0], "Be brief.");
        assert!(first.instructions[1].contains("\n/workspace\n"), "{:?}", first.instructions);
        assert_eq!(first.instructions.len(), 2);
        assert_eq!(first.instructions, second.instructions);
        assert_eq!(first.tools, second.tools);
    }
}
