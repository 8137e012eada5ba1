//! [`ServedClient`]: the offer to one client, and its calls.
//!
//! State, in memory: the number of its calls, and the tasks of its agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_base::text::strip_deceptive;
use conjure_skill::Skill;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, CreateTaskResult, ErrorData, ProgressNotificationParam,
    Tool as WireTool,
};
use rmcp::service::RequestContext;
use serde_json::Value;

use super::agent_tasks::AgentTasks;
use super::host::{AgentRunner, ProgressFn, ToolHost};
use super::skill_files::SkillFiles;
use super::tools;

/// The offer to one client: skills, the tools of its sandbox, and an agent. Clones share the state.
#[derive(Clone)]
pub struct ServedClient(Arc<Parts>);

struct Parts {
    skills: SkillFiles,
    tools: Arc<dyn ToolHost>,
    agent: Option<Arc<dyn AgentRunner>>,
    tasks: AgentTasks,
    /// Counts the calls, so that each has an id.
    calls: AtomicU64,
}

impl ServedClient {
    /// A client with these skills and tools. It also has `run_agent` if there is an agent.
    #[must_use]
    pub fn new(
        skills: impl IntoIterator<Item = Arc<Skill>>,
        tools: Arc<dyn ToolHost>,
        agent: Option<Arc<dyn AgentRunner>>,
    ) -> Self {
        let (skills, tasks) = (SkillFiles::new(skills), AgentTasks::default());
        Self(Arc::new(Parts { skills, tools, agent, tasks, calls: AtomicU64::new(0) }))
    }

    /// The number of agent runs that continue after their call was answered.
    #[must_use]
    pub fn running_tasks(&self) -> usize {
        self.0.tasks.running()
    }

    pub(super) fn tasks(&self) -> &AgentTasks {
        &self.0.tasks
    }

    pub(super) fn skills(&self) -> &SkillFiles {
        &self.0.skills
    }

    /// All tools, in order.
    pub(super) fn tools(&self) -> Vec<WireTool> {
        let Parts { skills, tools, agent, .. } = &*self.0;
        tools::list(skills, &tools.definitions(), agent.is_some())
    }

    /// Runs `work` on a blocking thread, because reading skills blocks.
    pub(super) async fn blocking<T: Send + 'static>(
        self,
        work: impl FnOnce(&SkillFiles) -> T + Send + 'static,
    ) -> Result<T, ErrorData> {
        let done = tokio::task::spawn_blocking(move || work(self.skills())).await;
        done.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    /// Runs a call of one of its tools.
    pub(super) async fn call(
        &self,
        name: &str,
        input: Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let result = match name {
            tools::SKILL_LIST => {
                let list = self.clone().blocking(tools::skill_list).await?;
                CallToolResult::success(vec![ContentBlock::text(list)])
            }
            tools::SKILL_READ => {
                let text = |key: &str| input.get(key).and_then(Value::as_str).map(str::to_owned);
                let Some(skill) = text("skill") else {
                    return Ok(tools::failed("bad input: `skill` must be a text").into());
                };
                let path = text("path").unwrap_or_else(|| "SKILL.md".to_owned());
                match self.clone().blocking(move |skills| skills.read(&skill, &path)).await? {
                    Ok(bytes) => match String::from_utf8(bytes) {
                        Ok(text) => CallToolResult::success(vec![ContentBlock::text(strip_deceptive(&text))]),
                        Err(_) => tools::failed("the file is no text; read it as a resource"),
                    },
                    Err(reason) => tools::failed(reason),
                }
            }
            tools::RUN_AGENT => return Ok(self.run_agent(&input, context).await),
            name => {
                let number = self.0.calls.fetch_add(1, Ordering::Relaxed);
                let calls = tools::sandbox_calls(name, &input, number);
                tokio::select! {
                    biased;
                    result = self.0.tools.call(&calls) => tools::to_wire(&result),
                    () = context.ct.cancelled() => tools::failed("the call was cancelled"),
                }
            }
        };
        Ok(result.into())
    }

    /// Answers with a task if the client supports that extension, and otherwise with the agent's answer.
    async fn run_agent(&self, input: &Value, context: &RequestContext<RoleServer>) -> CallToolResponse {
        let Some(agent) = &self.0.agent else { return tools::failed("there is no agent").into() };
        let Some(prompt) = input.get("prompt").and_then(Value::as_str) else {
            return tools::failed("bad input: `prompt` must be a text").into();
        };
        let has_tasks = context.client_capabilities().is_some_and(|client| client.supports_tasks());
        if has_tasks && let Some(task) = self.0.tasks.start(agent, prompt) {
            return CreateTaskResult::new(task).into();
        }
        let (told, mut steps) = tokio::sync::mpsc::unbounded_channel::<String>();
        let progress: ProgressFn = Arc::new(move |step| {
            // The send fails only after the call has ended.
            let _ = told.send(step);
        });
        let mut running = agent.run(prompt.to_owned(), progress, context.ct.clone());
        let mut count = 0.0;
        loop {
            tokio::select! {
                biased;
                Some(step) = steps.recv() => {
                    count += 1.0;
                    notify(context, count, step).await;
                }
                answer = &mut running => {
                    // The last steps are sent before the answer.
                    while let Ok(step) = steps.try_recv() {
                        count += 1.0;
                        notify(context, count, step).await;
                    }
                    let result = match answer {
                        Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
                        Err(reason) => tools::failed(reason),
                    };
                    return result.into();
                }
            }
        }
    }
}

/// Sends an agent's progress to a client that requested it. Errors are ignored.
async fn notify(context: &RequestContext<RoleServer>, count: f64, step: String) {
    if let Some(token) = context.meta.get_progress_token() {
        let mut told = ProgressNotificationParam::new(token, count);
        told.message = Some(step);
        let _ = context.peer.notify_progress(told).await;
    }
}

impl std::fmt::Debug for ServedClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServedClient").field("skills", self.skills()).finish_non_exhaustive()
    }
}
