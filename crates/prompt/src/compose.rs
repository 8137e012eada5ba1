//! The composer of a session: what the model is told beside the messages, made once and handed out unchanged.

use std::sync::Arc;

use conjure_conversation::{Composer, Composition, Standing, ToolDefinition};
use conjure_skill::Skill;

use crate::options::PromptOptions;
use crate::system::parts;

/// Base prompt, environment, skills and tools, in this order. Made once, so that every call of a session is told
/// the same bytes. It holds nothing that a crash could lose: the same skills and options give the same composer.
#[derive(Debug, Clone, Default)]
pub struct SkillComposer {
    composition: Composition,
}

impl SkillComposer {
    /// The composer of these instructions and tools. The tools keep their order.
    pub fn new<'s>(
        base_prompt: &str,
        skills: impl IntoIterator<Item = &'s Skill>,
        tools: impl Into<Arc<[ToolDefinition]>>,
        options: &PromptOptions,
    ) -> Self {
        Self {
            composition: Composition {
                instructions: parts(base_prompt, skills, options),
                tools: tools.into(),
            },
        }
    }
}

impl Composer for SkillComposer {
    fn compose(&self, _: &Standing) -> Composition {
        self.composition.clone()
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
