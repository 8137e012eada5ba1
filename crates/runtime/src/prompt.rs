//! Functions for the text that the model reads about skills (specification 5.1, 10).

use std::borrow::Borrow;

use conjure_conversation::ToolDefinition;
use conjure_prompt::{PromptOptions, ToolOptions};
use conjure_skill::Skill;

/// The fragment of the system prompt that describes these skills to a model (specification 5.1). Append it to your own
/// prompt. Without skills it is empty.
///
/// Its paths are those of this machine, which the `local` sandbox uses. For another sandbox, use [`build_system_prompt`]
/// with [`Workbench::prompt_options`](crate::Workbench::prompt_options).
///
/// ```
/// let found = conjure::load("../../fixtures/skills")?;
/// let fragment = conjure::prompt::system_prompt(&found.skills);
/// assert!(fragment.contains("<available_skills>") && fragment.contains("sales-report"));
/// # Ok::<(), conjure::Error>(())
/// ```
#[must_use]
pub fn system_prompt<S: Borrow<Skill>>(skills: &[S]) -> String {
    conjure_prompt::generate(skills.iter().map(Borrow::borrow), &PromptOptions::default())
}

/// A complete system prompt: the embedder's base prompt, then the description of the skills (specification 10). It does
/// not contain the instructions of loaded skills; [`Workbench::composer`](crate::Workbench::composer) adds them.
#[must_use]
pub fn build_system_prompt<S: Borrow<Skill>>(
    base_prompt: &str,
    skills: &[S],
    options: &PromptOptions,
) -> String {
    conjure_prompt::build_system_prompt(base_prompt, skills.iter().map(Borrow::borrow), options)
}

/// The definitions of the four built-in tools (specification 5.1, 8).
///
/// ```
/// let names: Vec<String> = conjure::prompt::tool_definitions().into_iter().map(|tool| tool.name).collect();
/// assert_eq!(names, ["view", "bash_tool", "create_file", "str_replace"]);
/// ```
#[must_use]
pub fn tool_definitions() -> Vec<ToolDefinition> {
    conjure_prompt::tool_definitions(&ToolOptions::default())
}
