//! A sandbox for stateless calls: the sandbox, its directory and the tools in one value.
//!
//! The stateless functions of the facade take a [`Workbench`] where the specification has options (`executor`,
//! `context`, `timeout`). It is created once, and used for as many calls as needed.

use std::any::Any;
use std::path::Path;
use std::sync::{Arc, Mutex};

use conjure_base::{Redactor, lock};
use conjure_conversation::{
    CallContext, SessionView, SkillActivation, ToolCall, ToolDefinition, ToolResult, execute_tool_calls,
};
use conjure_prompt::{
    PromptOptions, SessionSkill, SessionSkills, SkillComposer, SkillLocations, ToolOptions, tool_definitions,
};
use conjure_sandbox::{Executor, Layout};
use conjure_skill::Skill;
use conjure_toolbox::{SkillTools, Toolbox, ToolboxBuilder};

use crate::config::Config;
use crate::context::{ContextOptions, SessionContext, create_context};
use crate::error::Error;
use crate::sandbox::open_sandbox;

/// A sandbox with tools in it, for a set of skills.
///
/// End it with [`Workbench::close`], which waits until everything that runs in the sandbox has ended. Dropping it
/// ends the sandbox too, but does not wait.
pub struct Workbench {
    skills: Vec<Arc<Skill>>,
    session_skills: SessionSkills,
    prompting: PromptOptions,
    toolbox: Toolbox,
    /// The skills that the calls loaded. No conversation records them.
    loaded_skills: Mutex<SessionView>,
    executor: Arc<dyn Executor>,
    redactor: Redactor,
    // These are the last fields, because fields are dropped in order. Dropping them removes directories, and the sandbox must
    // have ended by then.
    context: Option<SessionContext>,
    resource: Option<Box<dyn Any + Send + Sync>>,
}

impl Workbench {
    /// A workbench for these skills, with a sandbox of the configured kind.
    ///
    /// # Errors
    /// If the context or the sandbox cannot be created.
    pub async fn open(
        skills: impl IntoIterator<Item = impl Into<Arc<Skill>>>,
        config: &Config,
        options: ContextOptions,
    ) -> Result<Self, Error> {
        let skills: Vec<Arc<Skill>> = skills.into_iter().map(Into::into).collect();
        let context = create_context(&skills, config, options)?;
        Self::in_context(skills, config, context).await
    }

    /// A workbench with a sandbox of the configured kind, in a context that was created before.
    ///
    /// # Errors
    /// If the sandbox cannot be created.
    pub async fn in_context(
        skills: impl IntoIterator<Item = impl Into<Arc<Skill>>>,
        config: &Config,
        context: SessionContext,
    ) -> Result<Self, Error> {
        let executor = open_sandbox(config, &context).await?;
        let redactor = context.redactor();
        let skills = skills.into_iter().map(Into::into).collect();
        Self::build(skills, config, Toolbox::builder(), executor, redactor, Some(context))
    }

    /// A workbench with the embedder's own executor, which [`Executor::init`] prepares. `toolbox` may contain tools of
    /// the embedder and an approver.
    ///
    /// # Errors
    ///
    /// If the executor cannot be prepared, or if the tools cannot be offered to a model.
    pub async fn with_executor(
        skills: impl IntoIterator<Item = impl Into<Arc<Skill>>>,
        config: &Config,
        executor: Arc<dyn Executor>,
        toolbox: ToolboxBuilder,
    ) -> Result<Self, Error> {
        executor.init().await?;
        let skills = skills.into_iter().map(Into::into).collect();
        Self::build(skills, config, toolbox, executor, Redactor::default(), None)
    }

    /// A workbench with a sandbox that was created elsewhere.
    pub(crate) async fn in_sandbox(
        skills: Vec<Arc<Skill>>,
        config: &Config,
        executor: Arc<dyn Executor>,
        redactor: Redactor,
    ) -> Result<Self, Error> {
        executor.init().await?;
        Self::build(skills, config, Toolbox::builder(), executor, redactor, None)
    }

    /// Keeps this value, the owner of the sandbox's directories, until the sandbox has ended.
    pub(crate) fn with_resource(mut self, resource: impl Any + Send + Sync) -> Self {
        self.resource = Some(Box::new(resource));
        self
    }

    fn build(
        skills: Vec<Arc<Skill>>,
        config: &Config,
        toolbox: ToolboxBuilder,
        executor: Arc<dyn Executor>,
        redactor: Redactor,
        context: Option<SessionContext>,
    ) -> Result<Self, Error> {
        let prompting = chosen_options(config, prompt_options(executor.layout().clone()));
        let session_skills = session_skills(&skills, &prompting);
        let toolbox = toolbox
            .with_executor(Arc::clone(&executor))
            .with_timeout(config.tool_timeout())
            .with_redactor(redactor.clone());
        let toolbox = match skill_tools(&session_skills, &prompting, config) {
            Some(tools) => toolbox.with_skills(tools),
            None => toolbox,
        };
        let (toolbox, loaded_skills) = (toolbox.build()?, Mutex::default());
        Ok(Self {
            skills,
            session_skills,
            prompting,
            toolbox,
            loaded_skills,
            executor,
            redactor,
            context,
            resource: None,
        })
    }

    /// The tool definitions of a workbench for these skills. Creates no sandbox. Lists the files of the skills, so it
    /// blocks.
    #[must_use]
    pub fn definitions_for(skills: &[Arc<Skill>], config: &Config) -> Vec<ToolDefinition> {
        let prompting = chosen_options(config, PromptOptions::default());
        let mut definitions = tool_definitions(&ToolOptions::default());
        if let Some(tools) = skill_tools(&session_skills(skills, &prompting), &prompting, config) {
            definitions.extend(tools.definitions_with_scripts());
        }
        definitions
    }

    /// The skills of the workbench.
    #[must_use]
    pub fn skills(&self) -> &[Arc<Skill>] {
        &self.skills
    }

    /// The sandbox.
    #[must_use]
    pub fn executor(&self) -> &Arc<dyn Executor> {
        &self.executor
    }

    /// The tools, as a driver needs them.
    #[must_use]
    pub const fn toolbox(&self) -> &Toolbox {
        &self.toolbox
    }

    /// The tool definitions for the model.
    #[must_use]
    pub fn definitions(&self) -> Arc<[ToolDefinition]> {
        self.toolbox.definitions()
    }

    /// The redactor for the secrets in the sandbox's environment.
    #[must_use]
    pub const fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The context of the sandbox, if the workbench created the sandbox itself.
    #[must_use]
    pub const fn context(&self) -> Option<&SessionContext> {
        self.context.as_ref()
    }

    /// The options of the prompt: the paths in the sandbox, and how the model gets skills. The configuration decides the
    /// latter. By default the model loads skills with a tool.
    #[must_use]
    pub fn prompt_options(&self) -> PromptOptions {
        self.prompting.clone()
    }

    /// The skills that were loaded by calls of [`execute`](crate::execute),
    /// [`execute_tool_calls`](crate::execute_tool_calls) and [`process_response`](crate::process_response).
    ///
    /// An embedder with its own client passes it to [`Workbench::composer`] before each request. A conversation of
    /// [`run_loop`](crate::run_loop) has its own.
    #[must_use]
    pub fn loaded_skills(&self) -> SessionView {
        lock(&self.loaded_skills).clone()
    }

    /// The composer of the system prompt and the tools. It combines this base prompt, the workspace, the skills, the
    /// tools, and the instructions of active skills.
    #[must_use]
    pub fn composer(&self, base_prompt: &str) -> SkillComposer {
        SkillComposer::for_session(base_prompt, &self.session_skills, self.definitions(), &self.prompting)
    }

    /// Runs one call. Errors are reported in the result.
    pub(crate) async fn execute(&self, call: &ToolCall) -> ToolResult {
        let mut results = self.execute_all(std::slice::from_ref(call)).await;
        results.pop().unwrap_or_else(|| ToolResult::error(&call.id, "the call gave no result"))
    }

    /// Runs the calls of one response without a driver. Each tool has its own timeout, and the calls cannot be cancelled.
    /// A skill that they load is active from the next response on.
    pub(crate) async fn execute_all(&self, calls: &[ToolCall]) -> Vec<ToolResult> {
        let context = CallContext { view: self.loaded_skills(), ..CallContext::default() };
        let results = execute_tool_calls(&self.toolbox, calls, context).await;
        if let Some(active) = results.iter().rev().find_map(|result| result.active_skills.clone()) {
            *lock(&self.loaded_skills) = SessionView::with_active_skills(active);
        }
        results
    }

    /// Ends everything that runs in the sandbox, and waits for it. Calling it again does nothing.
    pub async fn cleanup(&self) {
        self.executor.cleanup().await;
    }

    /// Returns the context, with the files in its directory, and drops the sandbox.
    #[must_use]
    pub fn into_context(self) -> Option<SessionContext> {
        self.context
    }

    /// Ends everything that runs in the sandbox, waits for it, and returns the context.
    pub async fn close(self) -> Option<SessionContext> {
        self.cleanup().await;
        self.into_context()
    }
}

/// Adds the configured choice of how the model gets skills to these options.
fn chosen_options(config: &Config, options: PromptOptions) -> PromptOptions {
    let chosen = config.skills();
    PromptOptions {
        activation: chosen.activation.unwrap_or(SkillActivation::Load),
        delivery: chosen.delivery.unwrap_or_default(),
        ..options
    }
}

fn session_skills(skills: &[Arc<Skill>], prompting: &PromptOptions) -> SessionSkills {
    let known = skills.iter().map(|skill| Arc::new(SessionSkill::from_skill(Arc::clone(skill))));
    SessionSkills::new(known, prompting.locations.clone())
}

/// The skill tools of a session with these skills; `None` if the model reads them with `view`.
pub(crate) fn skill_tools(
    skills: &SessionSkills,
    prompting: &PromptOptions,
    config: &Config,
) -> Option<SkillTools> {
    let chosen = config.skills();
    (prompting.activation == SkillActivation::Load && !skills.is_empty()).then(|| {
        SkillTools::new(skills.clone())
            .with_delivery(prompting.delivery)
            .with_max_active(chosen.active_limit())
            .with_interpreters(chosen.interpreter_table())
            .with_allowed_tools(chosen.allowed_tools.unwrap_or_default())
            .with_network(config.network().clone())
    })
}

/// The prompt options for these paths.
pub(crate) fn prompt_options(layout: Layout) -> PromptOptions {
    let workspace = Some(layout.workspace.clone());
    let locations = SkillLocations::mapped(move |path: &Path| layout.sandbox_path(path));
    PromptOptions { locations, workspace, ..PromptOptions::default() }
}

impl std::fmt::Debug for Workbench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workbench")
            .field("executor", &self.executor)
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}
