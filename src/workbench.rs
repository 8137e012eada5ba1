//! Where a conversation's tools run: a sandbox, the folder it works in, and the rules for calls, in one value.
//!
//! The stateless functions of the facade take a [`Workbench`] where the specification has options
//! (`executor`, `context`, `timeout`): it is made once and used for as many calls as wanted.

use std::path::Path;
use std::sync::Arc;

use conjure_base::Redactor;
use conjure_conversation::{CallContext, ToolCall, ToolDefinition, ToolResult, execute_tool_calls};
use conjure_prompt::{Locations, PromptOptions, SkillComposer};
use conjure_sandbox::{Executor, Layout};
use conjure_skill::Skill;
use conjure_toolbox::{Toolbox, ToolboxBuilder};

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
    toolbox: Toolbox,
    executor: Arc<dyn Executor>,
    redactor: Redactor,
    // Last: its folder goes when it is dropped, and the sandbox must not work in it any more then.
    context: Option<SessionContext>,
}

impl Workbench {
    /// A workbench with a sandbox of the configuration's kind, for these skills.
    ///
    /// # Errors
    /// When the context or the sandbox cannot be made.
    pub async fn open(
        skills: impl IntoIterator<Item = impl Into<Arc<Skill>>>,
        config: &Config,
        options: ContextOptions,
    ) -> Result<Self, Error> {
        let skills: Vec<Arc<Skill>> = skills.into_iter().map(Into::into).collect();
        let context = create_context(&skills, config, options)?;
        Self::in_context(skills, config, context).await
    }

    /// A workbench with a sandbox of the configuration's kind, in a context that was made before.
    ///
    /// # Errors
    /// When the sandbox cannot be made.
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

    /// A workbench over a host's own executor, which is prepared by [`Executor::init`]. `toolbox` may hold tools of
    /// the host and an approver.
    ///
    /// # Errors
    /// When the executor cannot be prepared, or the model cannot be told of the tools.
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

    fn build(
        skills: Vec<Arc<Skill>>,
        config: &Config,
        toolbox: ToolboxBuilder,
        executor: Arc<dyn Executor>,
        redactor: Redactor,
        context: Option<SessionContext>,
    ) -> Result<Self, Error> {
        let toolbox = toolbox
            .executor(Arc::clone(&executor))
            .timeout(config.tool_timeout())
            .redactor(redactor.clone())
            .build()?;
        Ok(Self { skills, toolbox, executor, redactor, context })
    }

    /// The skills that it was made for.
    #[must_use]
    pub fn skills(&self) -> &[Arc<Skill>] {
        &self.skills
    }

    /// The sandbox.
    #[must_use]
    pub fn executor(&self) -> &Arc<dyn Executor> {
        &self.executor
    }

    /// The tools, which a driver runs.
    #[must_use]
    pub const fn toolbox(&self) -> &Toolbox {
        &self.toolbox
    }

    /// What the model is told of the tools.
    #[must_use]
    pub fn definitions(&self) -> Arc<[ToolDefinition]> {
        self.toolbox.definitions()
    }

    /// Keeps the secrets of its environment out of what leaves.
    #[must_use]
    pub const fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The context that it works in, where it made the sandbox itself.
    #[must_use]
    pub const fn context(&self) -> Option<&SessionContext> {
        self.context.as_ref()
    }

    /// How the prompt names places: as the sandbox has them.
    #[must_use]
    pub fn prompt_options(&self) -> PromptOptions {
        prompt_options(self.executor.layout().clone())
    }

    /// What the model is told beside the messages: this base prompt, the workspace, the skills, the tools.
    #[must_use]
    pub fn composer(&self, base_prompt: &str) -> SkillComposer {
        let skills = self.skills.iter().map(|skill| &**skill);
        SkillComposer::new(base_prompt, skills, self.definitions(), &self.prompt_options())
    }

    /// Bounds for calls outside a driver: no deadline but each tool's own, and nobody who cancels.
    pub(crate) fn unbounded() -> CallContext {
        CallContext::default()
    }

    /// Runs one call. What goes wrong is told in the result.
    pub(crate) async fn execute(&self, call: &ToolCall) -> ToolResult {
        let mut results =
            execute_tool_calls(&self.toolbox, std::slice::from_ref(call), Self::unbounded()).await;
        results.pop().unwrap_or_else(|| ToolResult::error(&call.id, "the call gave no result"))
    }

    /// Ends everything that runs in the sandbox, and waits for it. Calling it again does nothing.
    pub async fn cleanup(&self) {
        self.executor.cleanup().await;
    }

    /// Gives the context back, with what was produced in its folder, and drops the sandbox.
    #[must_use]
    pub fn into_context(self) -> Option<SessionContext> {
        self.context
    }

    /// Ends everything that runs in the sandbox, waits for it, and gives the context back.
    pub async fn close(self) -> Option<SessionContext> {
        self.cleanup().await;
        self.into_context()
    }
}

/// How a prompt names places where they lie so.
pub(crate) fn prompt_options(layout: Layout) -> PromptOptions {
    let workspace = Some(layout.workspace.clone());
    let locations = Locations::mapped(move |path: &Path| layout.sandbox_path(path));
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
