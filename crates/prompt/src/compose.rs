//! The composer of a session: what the model is told beside the messages.
//!
//! All but the active skills and the artifacts is made once and handed out unchanged, so a request is told the same bytes as the one
//! before it unless a skill was loaded or unloaded, or an artifact came or went. A crash loses nothing: the same skills and options give the same composer.

use std::sync::Arc;

use conjure_conversation::{Activation, Composer, Composition, Delivery, Standing, ToolDefinition};
use conjure_skill::Skill;

use crate::artifacts::ArtifactSection;
use crate::options::PromptOptions;
use crate::session_skills::SessionSkills;
use crate::skill_tools::SkillTool;
use crate::system::{Scripts, skills_fragment, stable_parts};

/// Base prompt, environment, skills, then the instructions of the active ones, then the artifacts; and the tools.
#[derive(Debug, Clone, Default)]
pub struct SkillComposer {
    stable: Composition,
    active: Active,
    artifacts: Option<ArtifactSection>,
}

/// Where the instructions of active skills stand.
#[derive(Debug, Clone, Default)]
enum Active {
    /// Not in here: the model has read them by itself.
    #[default]
    Elsewhere,
    /// In the results that loaded them.
    Delivered(SessionSkills),
    /// Behind what is stable.
    Told(SessionSkills),
}

impl SkillComposer {
    /// The composer of these instructions and tools. The tools keep their order.
    ///
    /// It tells of skills that are read with `view`. What options say of loading is wording only: [`SkillComposer::of_session`]
    /// tells the instructions of active skills, too.
    pub fn new<'s>(
        base_prompt: &str,
        skills: impl IntoIterator<Item = &'s Skill>,
        tools: impl Into<Arc<[ToolDefinition]>>,
        options: &PromptOptions,
    ) -> Self {
        let tools = tools.into();
        let run_script = SkillTool::RunScript.name();
        let scripts =
            if tools.iter().any(|tool| tool.name == run_script) { Scripts::Some } else { Scripts::None };
        let skills = skills_fragment(skills, options, scripts);
        let stable = Composition { instructions: stable_parts(base_prompt, options, skills), tools };
        Self { stable, active: Active::Elsewhere, artifacts: None }
    }

    /// The composer of a session with these skills. Under [`Activation::Load`] and [`Delivery::Instructions`] the instructions of the
    /// skills that are active stand behind that, in a part of their own. Behind everything else stands what the options say of
    /// artifacts, with those that the session has and the assets of its skills, where there are any. Lists the files of skills then;
    /// blocks where that was not done before.
    pub fn of_session(
        base_prompt: &str,
        skills: &SessionSkills,
        tools: impl Into<Arc<[ToolDefinition]>>,
        options: &PromptOptions,
    ) -> Self {
        let plain = Self::new(base_prompt, skills.iter().map(|skill| &**skill.skill()), tools, options);
        let active = match (options.activation, options.delivery) {
            (Activation::Load, Delivery::Instructions) => Active::Told(skills.clone()),
            (Activation::Load, _) => Active::Delivered(skills.clone()),
            _ => Active::Elsewhere,
        };
        let artifacts = options.artifacts.clone().map(|prompt| {
            ArtifactSection::new(prompt, skills, plain.stable.tools.iter().map(|tool| tool.name.as_str()))
        });
        Self { active, artifacts, ..plain }
    }
}

impl Composer for SkillComposer {
    fn compose(&self, standing: &Standing) -> Composition {
        let mut composition = self.stable.clone();
        if let Active::Told(skills) = &self.active {
            let block = skills.active_skills_block(standing);
            if !block.is_empty() {
                composition.instructions.push(block);
            }
        }
        composition.instructions.extend(self.artifacts.as_ref().and_then(|section| section.block(standing)));
        composition
    }

    /// The instructions of active skills that stood in results, where a summary takes their place.
    fn preserved(&self, standing: &Standing) -> Option<String> {
        match &self.active {
            Active::Delivered(skills) => {
                Some(skills.active_skills_block(standing)).filter(|block| !block.is_empty())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{ToolOptions, tool_definitions};

    #[test]
    fn base_prompt_first_then_the_workspace_and_the_same_each_time() {
        let options = PromptOptions { workspace: Some("/workspace".into()), ..PromptOptions::default() };
        let composer =
            SkillComposer::new("Be brief.", [], tool_definitions(&ToolOptions::default()), &options);
        let (first, second) =
            (composer.compose(&Standing::default()), composer.compose(&Standing::default()));
        assert_eq!(first.instructions[0], "Be brief.");
        assert!(first.instructions[1].contains("\n/workspace\n"), "{:?}", first.instructions);
        assert_eq!(first.instructions.len(), 2);
        assert_eq!(first.instructions, second.instructions);
        assert_eq!(first.tools, second.tools);
    }
}
