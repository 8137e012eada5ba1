//! Agents: saved and versioned configurations of sessions.

use serde::{Deserialize, Serialize};

use crate::agents::mcp_server::{McpServer, check_mcp, patch_mcp_servers, read_mcp_servers};
use crate::agents::model_config::ModelConfig;
use crate::agents::skill_ref::{AgentSkill, SkillRef, read_skills};
use crate::agents::tool::{Tool, read_tools};
use crate::common::input::{Input, ObjectInput, Patch};
use crate::common::metadata::{self, Metadata, MetadataPatch};
use crate::{AgentId, RequestBody, RequestError, Time};

pub(crate) const MAX_NAME: usize = 256;
pub(crate) const MAX_SYSTEM: usize = 100_000;
pub(crate) const MAX_DESCRIPTION: usize = 2_048;

/// One version of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "agent")]
pub struct Agent {
    /// The id of the agent.
    pub id: AgentId,
    /// When the agent was archived; null while it is in use.
    pub archived_at: Option<Time>,
    /// When the agent was created.
    pub created_at: Time,
    /// A description for people.
    pub description: Option<String>,
    /// The identity that the agent acts under.
    pub execution_identity: ExecutionIdentity,
    /// The MCP servers.
    pub mcp_servers: Vec<McpServer>,
    /// Key-value pairs of the client.
    pub metadata: Metadata,
    /// The model that answers.
    pub model: ModelConfig,
    /// Always null: this server runs one agent in each session.
    pub multiagent: Option<NoMultiagent>,
    /// A display name.
    pub name: String,
    /// The skills that the model may load.
    pub skills: Vec<AgentSkill>,
    /// The system prompt.
    pub system: Option<String>,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
    /// When this version was created.
    pub updated_at: Time,
    /// The number of this version, from 1.
    pub version: u64,
}

/// The identity that an agent acts under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ExecutionIdentity {
    /// The server itself.
    #[default]
    ServiceAccount,
}

/// A configuration with several agents. This server does not support it, so the type has no values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoMultiagent {}

/// The body of `POST /v1/agents`.
#[derive(Debug, Clone)]
pub struct AgentCreate {
    /// The model that answers, by the name that the client sent.
    pub model: ModelConfig,
    /// A display name.
    pub name: String,
    /// A description for people.
    pub description: Option<String>,
    /// The MCP servers.
    pub mcp_servers: Vec<McpServer>,
    /// Key-value pairs of the client.
    pub metadata: Metadata,
    /// The skills that the model may load.
    pub skills: Vec<SkillRef>,
    /// The system prompt.
    pub system: Option<String>,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
}

/// The body of `POST /v1/agents/{id}`. Absent fields keep their values.
#[derive(Debug, Clone)]
pub struct AgentUpdate {
    /// A description for people.
    pub description: Patch<String>,
    /// The MCP servers.
    pub mcp_servers: Patch<Vec<McpServer>>,
    /// The keys to set or to remove.
    pub metadata: MetadataPatch,
    /// The model that answers.
    pub model: Option<ModelConfig>,
    /// A display name.
    pub name: Option<String>,
    /// The skills that the model may load.
    pub skills: Patch<Vec<SkillRef>>,
    /// The system prompt.
    pub system: Patch<String>,
    /// The tools that the model may call.
    pub tools: Patch<Vec<Tool>>,
    /// The version that the client has seen. The update fails if another version is current.
    pub version: Option<u64>,
}

impl RequestBody for AgentCreate {
    fn read(object: &mut ObjectInput<'_>) -> Result<Self, RequestError> {
        read_unsupported(object)?;
        let create = Self {
            model: ModelConfig::read(object.required("model")?)?,
            name: object.required("name")?.text(1..=MAX_NAME)?,
            description: read_text(object, "description", MAX_DESCRIPTION)?,
            mcp_servers: object.optional("mcp_servers").map_or(Ok(Vec::new()), read_mcp_servers)?,
            metadata: metadata::read(object)?,
            skills: object.optional("skills").map_or(Ok(Vec::new()), read_skills)?,
            system: read_text(object, "system", MAX_SYSTEM)?,
            tools: object.optional("tools").map_or(Ok(Vec::new()), read_tools)?,
        };
        check_mcp(&create.mcp_servers, &create.tools)?;
        Ok(create)
    }
}

impl RequestBody for AgentUpdate {
    fn read(object: &mut ObjectInput<'_>) -> Result<Self, RequestError> {
        read_unsupported(object)?;
        Ok(Self {
            description: patch_text(object, "description", MAX_DESCRIPTION)?,
            mcp_servers: patch_mcp_servers(object)?,
            metadata: metadata::read_patch(object)?,
            model: required_if_present(object, "model")?.map(ModelConfig::read).transpose()?,
            name: required_if_present(object, "name")?.map(|name| name.text(1..=MAX_NAME)).transpose()?,
            skills: object.patch("skills", read_skills)?,
            system: patch_text(object, "system", MAX_SYSTEM)?,
            tools: object.patch("tools", read_tools)?,
            version: object.optional("version").map(|version| version.integer(1..=u64::MAX)).transpose()?,
        })
    }
}

/// Refuses fields that agents have at the vendor but not here.
fn read_unsupported(object: &mut ObjectInput<'_>) -> Result<(), RequestError> {
    object.unsupported("multiagent", "several agents in one session (`multiagent`)")?;
    if let Some(identity) = object.optional("execution_identity") {
        let path = identity.path().to_owned();
        let mut identity = identity.object()?;
        if !identity.kind(&[("service_account", true), ("aws_role", false)])? {
            return Err(RequestError::unsupported(path, "the execution identity `aws_role`"));
        }
        identity.finish()?;
    }
    Ok(())
}

/// Reads an optional text. Empty and null mean none.
pub(crate) fn read_text(
    object: &mut ObjectInput<'_>,
    name: &'static str,
    max: usize,
) -> Result<Option<String>, RequestError> {
    let text = object.optional(name).map(|input| input.text(0..=max)).transpose()?;
    Ok(text.filter(|text| !text.is_empty()))
}

/// Reads a text of an update. Empty and null clear the value.
pub(crate) fn patch_text(
    object: &mut ObjectInput<'_>,
    name: &'static str,
    max: usize,
) -> Result<Patch<String>, RequestError> {
    Ok(match object.patch(name, |input| input.text(0..=max))? {
        Patch::Set(text) if text.is_empty() => Patch::Clear,
        patch => patch,
    })
}

/// Reads a field that may be absent but not null.
pub(crate) fn required_if_present<'a>(
    object: &mut ObjectInput<'a>,
    name: &'static str,
) -> Result<Option<Input<'a>>, RequestError> {
    match object.take(name) {
        Some(input) if input.is_null() => Err(input
            .error("null is not allowed, since it cannot be removed; leave the field out to keep the value")),
        input => Ok(input),
    }
}
