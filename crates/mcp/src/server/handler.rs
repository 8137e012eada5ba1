//! [`serve`]: answers one client over a pair of streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_skill::Skill;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, GetSkillRequestParams, GetSkillResult, Implementation,
    ListPromptsResult, ListResourcesResult, ListSkillsResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, Prompt, PromptMessage, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, Resource, ResourceContents, Role, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt as _};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::host::{AgentRunner, ProgressFn, ToolHost};
use super::skill_files::SkillFiles;
use super::tools;

/// What clients are told about the server.
const INSTRUCTIONS: &str = "Skills, and a sandbox to work in. Call `skill_list` before a job that a skill may be for, and `skill_read` before you \
                            do it. Commands and files live in a sandbox of your own, which ends with the connection.";

/// Answers one client until its input ends or `stopping` is cancelled.
///
/// # Errors
/// Why the client cannot be served, as text.
pub async fn serve<R, W>(
    skills: impl IntoIterator<Item = Arc<Skill>>,
    tools: Arc<dyn ToolHost>,
    agent: Option<Arc<dyn AgentRunner>>,
    (input, output): (R, W),
    stopping: CancellationToken,
) -> Result<(), String>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let handler =
        Handler(Arc::new(Shared { skills: SkillFiles::new(skills), tools, agent, calls: AtomicU64::new(0) }));
    let served = tokio::select! {
        served = handler.serve((input, output)) => served,
        () = stopping.cancelled() => return Ok(()),
    };
    let service = match served {
        Ok(service) => service,
        // A client that goes away before it has said anything.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    let ending = service.cancellation_token();
    tokio::select! {
        ended = service.waiting() => ended.map(drop).map_err(|error| error.to_string()),
        () = stopping.cancelled() => {
            ending.cancel();
            Ok(())
        }
    }
}

/// Clones are the same.
#[derive(Clone)]
struct Handler(Arc<Shared>);

struct Shared {
    skills: SkillFiles,
    tools: Arc<dyn ToolHost>,
    agent: Option<Arc<dyn AgentRunner>>,
    /// Counts calls, so that each has an id.
    calls: AtomicU64,
}

impl Shared {
    /// Reads skills on a thread for it.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&SkillFiles) -> T + Send + 'static,
    ) -> Result<T, ErrorData> {
        let shared = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&shared.skills)).await;
        done.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    async fn call(
        self: &Arc<Self>,
        name: &str,
        input: Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        match name {
            tools::SKILL_LIST => {
                let list = self.blocking(tools::skill_list).await?;
                Ok(CallToolResult::success(vec![ContentBlock::text(list)]))
            }
            tools::SKILL_READ => {
                let text = |key: &str| input.get(key).and_then(Value::as_str).map(str::to_owned);
                let Some(skill) = text("skill") else {
                    return Ok(tools::failed("bad input: `skill` must be a text"));
                };
                let path = text("path").unwrap_or_else(|| "SKILL.md".to_owned());
                Ok(match self.blocking(move |skills| skills.read(&skill, &path)).await? {
                    Ok(bytes) => match String::from_utf8(bytes) {
                        Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
                        Err(_) => tools::failed("the file is no text; read it as a resource"),
                    },
                    Err(reason) => tools::failed(reason),
                })
            }
            tools::RUN_AGENT if self.agent.is_some() => Ok(self.run_agent(&input, context).await),
            name => {
                let number = self.calls.fetch_add(1, Ordering::Relaxed);
                let mut last = None;
                for call in tools::sandbox_calls(name, &input, number) {
                    let result = tokio::select! {
                        biased;
                        result = self.tools.call(&call) => result,
                        () = context.ct.cancelled() => return Ok(tools::failed("the call was cancelled")),
                    };
                    let is_error = result.is_error;
                    last = Some(tools::to_wire(&result));
                    if is_error {
                        break;
                    }
                }
                Ok(last.unwrap_or_else(|| tools::failed("nothing was run")))
            }
        }
    }

    async fn run_agent(&self, input: &Value, context: &RequestContext<RoleServer>) -> CallToolResult {
        let Some(agent) = &self.agent else { return tools::failed("there is no agent") };
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

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_resources()
            .enable_skills()
            .build();
        let mut config = ServerConfig::new(capabilities);
        config.server_info = Implementation::new("conjure", env!("CARGO_PKG_VERSION"));
        config.instructions = Some(INSTRUCTIONS.to_owned());
        config
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let Shared { skills, tools, agent, .. } = &*self.0;
        Ok(ListToolsResult::with_all_items(tools::list(skills, &tools.definitions(), agent.is_some())))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Shared { skills, tools, agent, .. } = &*self.0;
        let is_known = tools::list(skills, &tools.definitions(), agent.is_some())
            .iter()
            .any(|tool| tool.name == request.name);
        if !is_known {
            let reason = format!("there is no tool `{}`", request.name.escape_debug());
            return Err(ErrorData::invalid_params(reason, None));
        }
        let input = Value::Object(request.arguments.unwrap_or_default());
        self.0.call(&request.name, input, &context).await.map(Into::into)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompt = |skill: &Arc<Skill>| Prompt::new(skill.name().as_str(), Some(skill.description()), None);
        Ok(ListPromptsResult::with_all_items(self.0.skills.iter().map(prompt).collect()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let name = request.name.clone();
        let read = self.0.blocking(move |skills| skills.read(&name, "SKILL.md")).await?;
        let bytes = read.map_err(|reason| ErrorData::invalid_params(reason, None))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let told = format!("Follow the instructions of the skill `{}`:\n\n{text}", request.name);
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, told)]).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = self.0.blocking(|skills| {
            let files = skills.iter().flat_map(|skill| SkillFiles::uris(skill));
            let resource = |(uri, size): (String, u64)| {
                let name = uri.strip_prefix("skill://").unwrap_or(&uri).to_owned();
                Resource::new(uri, name).with_size(size)
            };
            files.map(resource).collect::<Vec<_>>()
        });
        Ok(ListResourcesResult::with_all_items(resources.await?))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.clone();
        let read = self.0.blocking(move |skills| {
            let (name, path) = SkillFiles::parse_uri(&uri)
                .ok_or_else(|| format!("there is no resource `{}`", uri.escape_debug()))?;
            skills.read(name, path)
        });
        let missing =
            |reason: String| ErrorData::invalid_params(reason, Some(serde_json::json!({"uri": request.uri})));
        let bytes = read.await?.map_err(missing)?;
        let contents = match String::from_utf8(bytes) {
            Ok(text) => ResourceContents::text(text, request.uri),
            Err(error) => {
                use base64::Engine as _;
                let blob = base64::engine::general_purpose::STANDARD.encode(error.as_bytes());
                ResourceContents::blob(blob, request.uri)
            }
        };
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn list_skills(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        let entries = self.0.blocking(|skills| {
            let entry = |skill: &Arc<Skill>| {
                let entry = skills.entry(skill);
                // One that cannot be read is left out, so that the others are there.
                entry
                    .inspect_err(
                        |reason| tracing::warn!(skill = %skill.name(), reason, "a skill is not served"),
                    )
                    .ok()
            };
            skills.iter().filter_map(entry).collect::<Vec<_>>()
        });
        Ok(ListSkillsResult::with_all_items(entries.await?))
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        let uri = request.uri.clone();
        let entry = self.0.blocking(move |skills| {
            let skill = skills
                .of_uri(&uri)
                .ok_or_else(|| format!("there is no skill at `{}`", uri.escape_debug()))?;
            skills.entry(skill)
        });
        entry.await?.map(GetSkillResult::new).map_err(|reason| ErrorData::invalid_params(reason, None))
    }
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use conjure_conversation::{ToolCall, ToolDefinition, ToolResult};
    use conjure_skill::Mode;
    use rmcp::model::{ClientConfig, ProtocolVersion, SkillResources};
    use rmcp::{ClientLifecycleMode, ClientServiceExt as _};

    use super::*;
    use crate::server::ToolFuture;

    struct NoTools;

    impl ToolHost for NoTools {
        fn definitions(&self) -> Arc<[ToolDefinition]> {
            Arc::default()
        }

        fn call<'a>(&'a self, call: &'a ToolCall) -> ToolFuture<'a> {
            Box::pin(async { ToolResult::error(&call.id, "there are no tools") })
        }
    }

    #[tokio::test]
    async fn a_client_verifies_every_file_of_a_skill() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("report");
        std::fs::create_dir_all(root.join("assets")).unwrap();
        let manual = "---\nname: report\ndescription: Writes reports.\nlicense: MIT\n---\nWrite it.\n";
        std::fs::write(root.join("SKILL.md"), manual).unwrap();
        std::fs::write(root.join("assets/logo.bin"), [0xff, 0xfe, 0]).unwrap();
        let skill = Arc::new(Skill::load(&root, Mode::Strict).unwrap());

        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let stopping = CancellationToken::new();
        let serving = serve([skill], Arc::new(NoTools), None, tokio::io::split(ours), stopping.clone());
        let asking = async {
            let newest =
                ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
            let client = ClientConfig::default().serve_with_lifecycle(theirs, newest).await.unwrap();
            let skills = client.list_all_skills().await.unwrap();
            let [skill] = skills.as_slice() else { panic!("{skills:?}") };
            skill.validate().unwrap();
            assert_eq!(skill.frontmatter.extra["license"], "MIT");
            let SkillResources::Files(files) = &skill.resources else { panic!("{skill:?}") };
            assert_eq!(files.len(), 2);
            for file in files {
                let read =
                    client.read_resource(ReadResourceRequestParams::new(file.uri.clone())).await.unwrap();
                let bytes = match &read.contents[0] {
                    ResourceContents::TextResourceContents { text, .. } => text.clone().into_bytes(),
                    ResourceContents::BlobResourceContents { blob, .. } => {
                        use base64::Engine as _;
                        base64::engine::general_purpose::STANDARD.decode(blob).unwrap()
                    }
                    other => panic!("{other:?}"),
                };
                file.verify(&bytes).unwrap();
            }
            let one = client.get_skill(GetSkillRequestParams::new("skill://report/SKILL.md")).await.unwrap();
            assert_eq!(&one.skill, skill);
            assert!(client.get_skill(GetSkillRequestParams::new("skill://other/SKILL.md")).await.is_err());
            stopping.cancel();
        };
        let (served, ()) = tokio::join!(serving, asking);
        served.unwrap();
    }
}
