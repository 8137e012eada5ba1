//! [`ServedClient`]: what one client is offered, and its calls.
//!
//! State, in memory: how many calls it has made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_skill::Skill;
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ContentBlock, ErrorData, ProgressNotificationParam, Tool as WireTool};
use rmcp::service::RequestContext;
use serde_json::Value;

use super::host::{AgentRunner, ProgressFn, ToolHost};
use super::skill_files::SkillFiles;
use super::tools;

/// What one client is offered: skills, the tools of its sandbox, and an agent. Clones are the same.
#[derive(Clone)]
pub struct ServedClient(Arc<Parts>);

struct Parts {
    skills: SkillFiles,
    tools: Arc<dyn ToolHost>,
    agent: Option<Arc<dyn AgentRunner>>,
    /// Counts calls, so that each has an id.
    calls: AtomicU64,
}

impl ServedClient {
    /// A client that is offered these skills and tools, and `run_agent` where there is an agent.
    #[must_use]
    pub fn new(
        skills: impl IntoIterator<Item = Arc<Skill>>,
        tools: Arc<dyn ToolHost>,
        agent: Option<Arc<dyn AgentRunner>>,
    ) -> Self {
        Self(Arc::new(Parts { skills: SkillFiles::new(skills), tools, agent, calls: AtomicU64::new(0) }))
    }

    pub(super) fn skills(&self) -> &SkillFiles {
        &self.0.skills
    }

    /// All tools, in order.
    pub(super) fn tools(&self) -> Vec<WireTool> {
        let Parts { skills, tools, agent, .. } = &*self.0;
        tools::list(skills, &tools.definitions(), agent.is_some())
    }

    /// Reads skills on a thread for it.
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
    ) -> Result<CallToolResult, ErrorData> {
        match name {
            tools::SKILL_LIST => {
                let list = self.clone().blocking(tools::skill_list).await?;
                Ok(CallToolResult::success(vec![ContentBlock::text(list)]))
            }
            tools::SKILL_READ => {
                let text = |key: &str| input.get(key).and_then(Value::as_str).map(str::to_owned);
                let Some(skill) = text("skill") else {
                    return Ok(tools::failed("bad input: `skill` must be a text"));
                };
                let path = text("path").unwrap_or_else(|| "SKILL.md".to_owned());
                Ok(match self.clone().blocking(move |skills| skills.read(&skill, &path)).await? {
                    Ok(bytes) => match String::from_utf8(bytes) {
                        Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
                        Err(_) => tools::failed("the file is no text; read it as a resource"),
                    },
                    Err(reason) => tools::failed(reason),
                })
            }
            tools::RUN_AGENT if self.0.agent.is_some() => Ok(self.run_agent(&input, context).await),
            name => {
                let number = self.0.calls.fetch_add(1, Ordering::Relaxed);
                let calls = tools::sandbox_calls(name, &input, number);
                tokio::select! {
                    biased;
                    result = self.0.tools.call(&calls) => Ok(tools::to_wire(&result)),
                    () = context.ct.cancelled() => Ok(tools::failed("the call was cancelled")),
                }
            }
        }
    }

    async fn run_agent(&self, input: &Value, context: &RequestContext<RoleServer>) -> CallToolResult {
        let Some(agent) = &self.0.agent else { return tools::failed("there is no agent") };
        let Some(prompt) = input.get("prompt").and_then(Value::as_str) else {
            return tools::failed("bad input: `prompt` must be a text");
        };
        let (told, mut steps) = tokio::sync::mpsc::unbounded_channel::<String>();
        let progress: ProgressFn = Arc::new(move |step| {
            // Nobody listens once the call is over.
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
                    // What it did last stands before its answer.
                    while let Ok(step) = steps.try_recv() {
                        count += 1.0;
                        notify(context, count, step).await;
                    }
                    return match answer {
                        Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
                        Err(reason) => tools::failed(reason),
                    };
                }
            }
        }
    }
}

/// Tells a client that asked for it what an agent does. A client that does not listen misses it.
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
