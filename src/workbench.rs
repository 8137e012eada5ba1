//! Where a conversation's tools run: a sandbox, the folder it works in, and the rules for calls, in one value.
//!
//! The stateless functions of the facade take a [`Workbench`] where the specification has options
//! (`executor`, `context`, `timeout`): it is made once and used for as many calls as wanted.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use conjure_base::Redactor;
use conjure_conversation::{
    Activation, CallContext, Standing, ToolCall, ToolDefinition, ToolResult, execute_tool_calls,
};
use conjure_prompt::{Locations, PromptOptions, SessionSkill, SessionSkills, SkillComposer};
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
    /// Which skills the calls made active that no conversation records.
    standing: Mutex<Standing>,
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
        let chosen = config.skills();
        let prompting = PromptOptions {
            activation: chosen.activation.unwrap_or(Activation::Load),
            delivery: chosen.delivery.unwrap_or_default(),
            ..prompt_options(executor.layout().clone())
        };
        let known = skills.iter().map(|skill| Arc::new(SessionSkill::of(Arc::clone(skill))));
        let session_skills = SessionSkills::new(known, prompting.locations.clone());
        let toolbox =
            toolbox.executor(Arc::clone(&executor)).timeout(config.tool_timeout()).redactor(redactor.clone());
        let toolbox = match skill_tools(&session_skills, &prompting, config) {
            Some(tools) => toolbox.skills(tools),
            None => toolbox,
        };
        let (toolbox, standing) = (toolbox.build()?, Mutex::default());
        Ok(Self { skills, session_skills, prompting, toolbox, standing, executor, redactor, context })
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

    /// How the prompt names places, as the sandbox has them, and how the model gets at skills, as the configuration says: it loads
    /// them, where that says nothing.
    #[must_use]
    pub fn prompt_options(&self) -> PromptOptions {
        self.prompting.clone()
    }

    /// Which skills the calls have loaded that were run by [`execute`](crate::execute),
    /// [`execute_tool_calls`](crate::execute_tool_calls) and [`process_response`](crate::process_response): with a client of its own, a
    /// host gives it to [`Workbench::composer`] before each request. A conversation of [`run_loop`](crate::run_loop) has one of its
    /// own.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the model is told beside the messages: this base prompt, the workspace, the skills, the tools, and the instructions of
    /// the active skills.
    #[must_use]
    pub fn composer(&self, base_prompt: &str) -> SkillComposer {
        SkillComposer::of_session(base_prompt, &self.session_skills, self.definitions(), &self.prompting)
    }

    /// Runs one call. What goes wrong is told in the result.
    pub(crate) async fn execute(&self, call: &ToolCall) -> ToolResult {
        let mut results = self.execute_all(std::slice::from_ref(call)).await;
        results.pop().unwrap_or_else(|| ToolResult::error(&call.id, "the call gave no result"))
    }

    /// Runs the calls of one answer outside a driver: no deadline but each tool's own, and nobody who cancels. What they make active
    /// counts from the next answer on.
    pub(crate) async fn execute_all(&self, calls: &[ToolCall]) -> Vec<ToolResult> {
        let context = CallContext { standing: self.standing(), ..CallContext::default() };
        let results = execute_tool_calls(&self.toolbox, calls, context).await;
        if let Some(active) = results.iter().rev().find_map(|result| result.active_skills.clone()) {
            *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = Standing::with_active(active);
        }
        results
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

/// The runtime tools of a session with these skills; none where it reads them with `view`.
pub(crate) fn skill_tools(
    skills: &SessionSkills,
    prompting: &PromptOptions,
    config: &Config,
) -> Option<SkillTools> {
    let chosen = config.skills();
    (prompting.activation == Activation::Load && !skills.is_empty()).then(|| {
        SkillTools::new(skills.clone())
            .delivery(prompting.delivery)
            .most_active(chosen.most_active())
            .interpreters(chosen.table())
            .allowed_tools(chosen.allowed_tools.unwrap_or_default())
            .network(config.network().clone())
    })
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
