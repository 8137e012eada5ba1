//! [`Handler`]: answers the requests of clients.

use std::sync::Arc;

use conjure_base::text::strip_deceptive;
use conjure_skill::Skill;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, ErrorData, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, GetSkillRequestParams, GetSkillResult, GetTaskParams, GetTaskResult,
    Implementation, ListPromptsResult, ListResourcesResult, ListSkillsResult, ListToolsResult,
    PaginatedRequestParams, Prompt, PromptMessage, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, Resource, ResourceContents, Role, ServerCapabilities, ServerConfig, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;

use super::client::ServedClient;
use super::skill_files::SkillFiles;

/// The instructions for clients.
const INSTRUCTIONS: &str = "Skills, and a sandbox to work in. Call `skill_list` before a job that a skill may be for, and `skill_read` before you \
                            do it. Commands and files live in a sandbox of your own.";

/// Determines which client a request comes from.
#[derive(Debug, Clone)]
pub(super) enum Handler {
    /// The client at the other end of a pair of streams.
    One(ServedClient),
    /// The client that is stored in the extensions of each HTTP request.
    OfRequest,
}

impl Handler {
    fn client(&self, context: &RequestContext<RoleServer>) -> Result<ServedClient, ErrorData> {
        let of_request = || {
            let parts = context.extensions.get::<http::request::Parts>();
            parts.and_then(|parts| parts.extensions.get::<ServedClient>()).cloned()
        };
        let client = match self {
            Self::One(client) => Some(client.clone()),
            Self::OfRequest => of_request(),
        };
        client.ok_or_else(|| ErrorData::internal_error("the request is of no client", None))
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_resources()
            .enable_skills()
            .enable_tasks()
            .build();
        let mut config = ServerConfig::new(capabilities);
        config.server_info = Implementation::new("conjure", env!("CARGO_PKG_VERSION"));
        config.instructions = Some(INSTRUCTIONS.to_owned());
        config
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.client(&context)?.tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let client = self.client(&context)?;
        let is_known = client.tools().iter().any(|tool| tool.name == request.name);
        if !is_known {
            let reason = format!("there is no tool `{}`", request.name.escape_debug());
            return Err(ErrorData::invalid_params(reason, None));
        }
        let input = Value::Object(request.arguments.unwrap_or_default());
        client.call(&request.name, input, &context).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.client(&context)?.tasks().get(&request.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.client(&context)?.tasks().update(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.client(&context)?.tasks().cancel(&request.task_id)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompt = |skill: &Arc<Skill>| {
            Prompt::new(skill.name().as_str(), Some(strip_deceptive(skill.description())), None)
        };
        Ok(ListPromptsResult::with_all_items(self.client(&context)?.skills().iter().map(prompt).collect()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let name = request.name.clone();
        let read = self.client(&context)?.blocking(move |skills| skills.read(&name, "SKILL.md")).await?;
        let bytes = read.map_err(|reason| ErrorData::invalid_params(reason, None))?;
        let text = String::from_utf8_lossy(&bytes);
        let text = strip_deceptive(&text);
        let told = format!("Follow the instructions of the skill `{}`:\n\n{text}", request.name);
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, told)]).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = self.client(&context)?.blocking(|skills| {
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
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.clone();
        let read = self.client(&context)?.blocking(move |skills| {
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
        context: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        let entries = self.client(&context)?.blocking(|skills| {
            let entry = |skill: &Arc<Skill>| {
                let entry = skills.entry(skill);
                // An unreadable skill is left out, so that the others are still listed.
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
        context: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        let uri = request.uri.clone();
        let entry = self.client(&context)?.blocking(move |skills| {
            let skill = skills
                .of_uri(&uri)
                .ok_or_else(|| format!("there is no skill at `{}`", uri.escape_debug()))?;
            skills.entry(skill)
        });
        entry.await?.map(GetSkillResult::new).map_err(|reason| ErrorData::invalid_params(reason, None))
    }
}
