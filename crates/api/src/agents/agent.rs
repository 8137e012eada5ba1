//! Agents: saved, versioned configurations of what a session runs.

use serde::{Deserialize, Serialize};

use crate::agents::mcp_server::{McpServer, check_mcp, patch_mcp_servers, read_mcp_servers};
use crate::agents::model_config::ModelConfig;
use crate::agents::skill_ref::{AgentSkill, SkillRef, read_skills};
use crate::agents::tool::{Tool, read_tools};
use crate::common::input::{Input, ObjectInput, Patch};
use crate::common::metadata::{self, Metadata, MetadataPatch};
use crate::{AgentId, RequestError, Time};

pub(crate) const MAX_NAME: usize = 256;
pub(crate) const MAX_SYSTEM: usize = 100_000;
pub(crate) const MAX_DESCRIPTION: usize = 2_048;

/// One version of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "agent")]
pub struct Agent {
    /// Which agent.
    pub id: AgentId,
    /// When the agent was archived; null while it is in use.
    pub archived_at: Option<Time>,
    /// When the agent was made.
    pub created_at: Time,
    /// What the agent does, for people.
    pub description: Option<String>,
    /// Who the agent acts as.
    pub execution_identity: ExecutionIdentity,
    /// Servers of tools.
    pub mcp_servers: Vec<McpServer>,
    /// Pairs of text that the client keeps here.
    pub metadata: Metadata,
    /// The model that answers.
    pub model: ModelConfig,
    /// Always null: this server runs one agent in each session.
    pub multiagent: Option<NoMultiagent>,
    /// A name for people.
    pub name: String,
    /// The skills that the model may load.
    pub skills: Vec<AgentSkill>,
    /// The system prompt.
    pub system: Option<String>,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
    /// When this version was made.
    pub updated_at: Time,
    /// The number of this version, from 1.
    pub version: u64,
}

/// Who an agent acts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ExecutionIdentity {
    /// The server itself.
    #[default]
    ServiceAccount,
}

/// The configuration of several agents in one session, of which there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoMultiagent {}

/// The body of `POST /v1/agents`.
#[derive(Debug, Clone)]
pub struct AgentCreate {
    /// The model that answers, by the client's name for it.
    pub model: ModelConfig,
    /// A name for people.
    pub name: String,
    /// What the agent does, for people.
    pub description: Option<String>,
    /// Servers of tools.
    pub mcp_servers: Vec<McpServer>,
    /// Pairs of text.
    pub metadata: Metadata,
    /// The skills that the model may load.
    pub skills: Vec<SkillRef>,
    /// The system prompt.
    pub system: Option<String>,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
}

/// The body of `POST /v1/agents/{id}`: what is left out stays.
#[derive(Debug, Clone)]
pub struct AgentUpdate {
    /// What the agent does, for people.
    pub description: Patch<String>,
    /// Servers of tools.
    pub mcp_servers: Patch<Vec<McpServer>>,
    /// Pairs of text to set or to remove.
    pub metadata: MetadataPatch,
    /// The model that answers.
    pub model: Option<ModelConfig>,
    /// A name for people.
    pub name: Option<String>,
    /// The skills that the model may load.
    pub skills: Patch<Vec<SkillRef>>,
    /// The system prompt.
    pub system: Patch<String>,
    /// The tools that the model may call.
    pub tools: Patch<Vec<Tool>>,
    /// The version that the client has seen. The update fails when another one is current.
    pub version: Option<u64>,
}

impl AgentCreate {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// When the body is not a new agent; the error says where and how to mend it.
    pub fn from_json(body: &[u8]) -> Result<Self, RequestError> {
        let mut object = Input::body(body)?.object()?;
        read_unsupported(&mut object)?;
        let create = Self {
            model: ModelConfig::read(object.required("model")?)?,
            name: object.required("name")?.text(1..=MAX_NAME)?,
            description: read_text(&mut object, "description", MAX_DESCRIPTION)?,
            mcp_servers: object.optional("mcp_servers").map_or(Ok(Vec::new()), read_mcp_servers)?,
            metadata: metadata::read(&mut object)?,
            skills: object.optional("skills").map_or(Ok(Vec::new()), read_skills)?,
            system: read_text(&mut object, "system", MAX_SYSTEM)?,
            tools: object.optional("tools").map_or(Ok(Vec::new()), read_tools)?,
        };
        object.finish()?;
        check_mcp(&create.mcp_servers, &create.tools)?;
        Ok(create)
    }
}

impl AgentUpdate {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// When the body is not an update of an agent; the error says where and how to mend it.
    pub fn from_json(body: &[u8]) -> Result<Self, RequestError> {
        let mut object = Input::body(body)?.object()?;
        read_unsupported(&mut object)?;
        let update = Self {
            description: patch_text(&mut object, "description", MAX_DESCRIPTION)?,
            mcp_servers: patch_mcp_servers(&mut object)?,
            metadata: metadata::read_patch(&mut object)?,
            model: required_if_given(&mut object, "model")?.map(ModelConfig::read).transpose()?,
            name: required_if_given(&mut object, "name")?.map(|name| name.text(1..=MAX_NAME)).transpose()?,
            skills: object.patch("skills", read_skills)?,
            system: patch_text(&mut object, "system", MAX_SYSTEM)?,
            tools: object.patch("tools", read_tools)?,
            version: object.optional("version").map(|version| version.integer(1..=u64::MAX)).transpose()?,
        };
        object.finish()?;
        Ok(update)
    }
}

/// Refuses what agents have at the vendor and not here.
fn read_unsupported(object: &mut ObjectInput<'_>) -> Result<(), RequestError> {
    object.unsupported("multiagent", "several agents in one session (`multiagent`)")?;
    if let Some(identity) = object.optional("execution_identity") {
        let place = identity.place().to_owned();
        let mut identity = identity.object()?;
        if !identity.kind(&[("service_account", true), ("aws_role", false)])? {
            return Err(RequestError::unsupported(place, "the execution identity `aws_role`"));
        }
        identity.finish()?;
    }
    Ok(())
}

/// An optional text; empty and null are none.
pub(crate) fn read_text(
    object: &mut ObjectInput<'_>,
    name: &'static str,
    max: usize,
) -> Result<Option<String>, RequestError> {
    let text = object.optional(name).map(|input| input.text(0..=max)).transpose()?;
    Ok(text.filter(|text| !text.is_empty()))
}

/// A text of an update; empty and null clear it.
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

/// A field that may be left out and may not be null.
pub(crate) fn required_if_given<'a>(
    object: &mut ObjectInput<'a>,
    name: &'static str,
) -> Result<Option<Input<'a>>, RequestError> {
    match object.given(name) {
        Some(input) if input.is_null() => Err(input
            .error("null is not allowed, since it cannot be removed; leave the field out to keep the value")),
        input => Ok(input),
    }
}
