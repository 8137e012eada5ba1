//! Sessions: each runs an agent in an environment.

use serde::{Deserialize, Serialize};

use crate::agents::agent::{
    Agent, ExecutionIdentity, MAX_SYSTEM, NoMultiagent, patch_text, read_text, required_if_present,
};
use crate::agents::mcp_server::{McpServer, patch_mcp_servers};
use crate::agents::model_config::ModelConfig;
use crate::agents::skill_ref::{AgentSkill, SkillRef, read_skills};
use crate::agents::tool::{Tool, read_tools};
use crate::common::input::{Input, ObjectInput, Patch};
use crate::common::metadata::{self, Metadata, MetadataPatch};
use crate::sessions::client_event::read_initial_event;
use crate::sessions::content::ContentBlock;
use crate::sessions::resource::{Resource, ResourceCreate};
use crate::vaults::vault::read_vault_ids;
use crate::{AgentId, EnvironmentId, RequestBody, RequestError, Time};

const MAX_TITLE: usize = 1_000;
const MAX_INITIAL_EVENTS: usize = 50;
const MAX_ID: usize = 256;

/// The maximum number of files that a session may have as resources.
const MAX_FILES: usize = 999;

/// A session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename = "session")]
pub struct Session {
    /// The id of the session.
    pub id: String,
    /// The agent, with the session's own changes.
    pub agent: SessionAgent,
    /// When it was archived; null while it is in use.
    pub archived_at: Option<Time>,
    /// The budget; null without a limit.
    pub budget: Option<Budget>,
    /// When it was created.
    pub created_at: Time,
    /// Always null: this server has no deployments that create sessions.
    pub deployment_id: Option<String>,
    /// The environment of its sandbox.
    pub environment_id: EnvironmentId,
    /// Key-value pairs of the client.
    pub metadata: Metadata,
    /// Always empty: this server does not evaluate outcomes.
    pub outcome_evaluations: Vec<NoMultiagent>,
    /// The files that are mounted in its sandbox.
    pub resources: Vec<Resource>,
    /// How long it was active.
    pub stats: SessionStats,
    /// Its current status.
    pub status: SessionStatus,
    /// A title for people.
    pub title: Option<String>,
    /// When it last changed.
    pub updated_at: Time,
    /// Its usage.
    pub usage: SessionUsage,
    /// The vaults with the credentials for its MCP servers.
    pub vault_ids: Vec<String>,
}

/// The agent of a session: one version, with the session's own changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename = "agent")]
pub struct SessionAgent {
    /// The id of the agent.
    pub id: AgentId,
    /// A description for people.
    pub description: Option<String>,
    /// The identity that the agent acts under.
    pub execution_identity: ExecutionIdentity,
    /// The MCP servers.
    pub mcp_servers: Vec<McpServer>,
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
    /// The version of the agent.
    pub version: u64,
}

impl From<Agent> for SessionAgent {
    fn from(agent: Agent) -> Self {
        Self {
            id: agent.id,
            description: agent.description,
            execution_identity: agent.execution_identity,
            mcp_servers: agent.mcp_servers,
            model: agent.model,
            multiagent: agent.multiagent,
            name: agent.name,
            skills: agent.skills,
            system: agent.system,
            tools: agent.tools,
            version: agent.version,
        }
    }
}

/// The status of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// The server will continue the session by itself after a failure.
    Rescheduling,
    /// A turn is running.
    Running,
    /// The session waits for its client.
    Idle,
    /// The session has ended permanently.
    Terminated,
}

pub(crate) const STATUSES: [(&str, SessionStatus); 4] = [
    ("rescheduling", SessionStatus::Rescheduling),
    ("running", SessionStatus::Running),
    ("idle", SessionStatus::Idle),
    ("terminated", SessionStatus::Terminated),
];

impl SessionStatus {
    /// The status as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        STATUSES[self as usize].0
    }
}

/// How long a session was active.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SessionStats {
    /// The seconds during which a turn was running.
    pub active_seconds: Option<f64>,
    /// The seconds since the session was created.
    pub duration_seconds: Option<f64>,
}

/// The usage of a session over all its turns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SessionUsage {
    /// The seconds during which a turn was running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_seconds: Option<f64>,
    /// Tokens written to the prompt cache, by lifetime.
    pub cache_creation: Option<CacheCreation>,
    /// Tokens read from the prompt cache.
    pub cache_read_input_tokens: Option<u64>,
    /// Other input tokens.
    pub input_tokens: Option<u64>,
    /// The total list price, if the model has prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_cost: Option<Money>,
    /// Output tokens.
    pub output_tokens: Option<u64>,
}

/// Tokens written to the prompt cache, by lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CacheCreation {
    /// Tokens cached for one hour.
    pub ephemeral_1h_input_tokens: Option<u64>,
    /// Tokens cached for five minutes.
    pub ephemeral_5m_input_tokens: Option<u64>,
}

/// An amount of money in cents of US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "MoneyJson", try_from = "MoneyJson")]
pub struct Money {
    /// The number of cents.
    pub cents: u64,
}

/// [`Money`] in JSON.
#[derive(Serialize, Deserialize)]
struct MoneyJson {
    amount: String,
    currency: String,
}

impl From<Money> for MoneyJson {
    fn from(money: Money) -> Self {
        Self { amount: money.cents.to_string(), currency: "USD".to_owned() }
    }
}

impl TryFrom<MoneyJson> for Money {
    type Error = String;

    fn try_from(json: MoneyJson) -> Result<Self, String> {
        match (json.currency.as_str(), cents(&json.amount)) {
            ("USD", Some(cents)) => Ok(Self { cents }),
            _ => Err(format!("{} {} is not an amount in cents of USD", json.amount, json.currency)),
        }
    }
}

/// Parses a number of cents: digits without leading zeros.
fn cents(text: &str) -> Option<u64> {
    let canonical = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = canonical && (text == "0" || !text.starts_with('0'));
    if canonical { text.parse().ok() } else { None }
}

/// The budget of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "limit")]
pub struct Budget {
    /// The cost at which the session stops, by the list prices of its model.
    pub max_list_cost: Money,
}

impl Budget {
    fn read(input: Input<'_>) -> Result<Self, RequestError> {
        let mut object = input.object()?;
        object.kind(&[("limit", ())])?;
        let mut cost = object.required("max_list_cost")?.object()?;
        let amount = cost.required("amount")?;
        let text = amount.string()?;
        let cents = cents(&text).ok_or_else(|| {
            amount.error(format!(
                "`{text}` is not a number of cents; write digits without leading zeros: \"2500\""
            ))
        })?;
        cost.required("currency")?.one_of(&[("USD", ())])?;
        cost.finish()?;
        object.finish()?;
        Ok(Self { max_list_cost: Money { cents } })
    }
}

/// The agent that a new session runs.
#[derive(Debug, Clone)]
pub struct AgentChoice {
    /// The id of the agent, as the client sent it.
    pub id: String,
    /// The version; `None` for the newest.
    pub version: Option<u64>,
    /// The settings that replace those of the agent.
    pub overrides: AgentOverrides,
}

/// The settings of a session that replace those of its agent.
#[derive(Debug, Clone, Default)]
pub struct AgentOverrides {
    /// The MCP servers.
    pub mcp_servers: Patch<Vec<McpServer>>,
    /// The model.
    pub model: Option<ModelConfig>,
    /// The skills.
    pub skills: Patch<Vec<SkillRef>>,
    /// The system prompt.
    pub system: Patch<String>,
    /// The tools.
    pub tools: Patch<Vec<Tool>>,
}

/// The body of `POST /v1/sessions`.
#[derive(Debug, Clone)]
pub struct SessionCreate {
    /// The agent.
    pub agent: AgentChoice,
    /// The id of the environment, as the client sent it.
    pub environment_id: String,
    /// The budget.
    pub budget: Option<Budget>,
    /// The messages that the session starts with.
    pub initial_messages: Vec<Vec<ContentBlock>>,
    /// Key-value pairs of the client.
    pub metadata: Metadata,
    /// The files to mount in its sandbox.
    pub resources: Vec<ResourceCreate>,
    /// A title for people.
    pub title: Option<String>,
    /// The ids of the vaults with its credentials, as the client sent them.
    pub vault_ids: Vec<String>,
}

/// The body of `POST /v1/sessions/{id}`. Absent fields keep their values.
#[derive(Debug, Clone)]
pub struct SessionUpdate {
    /// The agent's tools. They can only change while the session is idle.
    pub tools: Option<Vec<Tool>>,
    /// The budget.
    pub budget: Patch<Budget>,
    /// The keys to set or to remove.
    pub metadata: MetadataPatch,
    /// A title for people.
    pub title: Patch<String>,
}

impl RequestBody for SessionCreate {
    fn read(object: &mut ObjectInput<'_>) -> Result<Self, RequestError> {
        Ok(Self {
            agent: read_agent(object.required("agent")?)?,
            environment_id: object.required("environment_id")?.text(1..=MAX_ID)?,
            budget: object.optional("budget").map(Budget::read).transpose()?,
            initial_messages: match object.optional("initial_events") {
                None => Vec::new(),
                Some(events) => (events.array("events", MAX_INITIAL_EVENTS)?.into_iter())
                    .map(read_initial_event)
                    .collect::<Result<_, _>>()?,
            },
            metadata: metadata::read(object)?,
            resources: object.optional("resources").map_or(Ok(Vec::new()), read_resources)?,
            title: read_text(object, "title", MAX_TITLE)?,
            vault_ids: read_vault_ids(object)?,
        })
    }
}

impl RequestBody for SessionUpdate {
    fn read(object: &mut ObjectInput<'_>) -> Result<Self, RequestError> {
        object.unsupported("vault_ids", "a change of a session's vaults (`vault_ids`)")?;
        Ok(Self {
            tools: object.optional("agent").map(read_agent_update).transpose()?.flatten(),
            budget: object.patch("budget", Budget::read)?,
            metadata: metadata::read_patch(object)?,
            title: patch_text(object, "title", MAX_TITLE)?,
        })
    }
}

fn read_agent_update(input: Input<'_>) -> Result<Option<Vec<Tool>>, RequestError> {
    let mut object = input.object()?;
    object.unsupported("mcp_servers", "a change of a session's MCP servers (`mcp_servers`)")?;
    let tools = object.optional("tools").map(read_tools).transpose()?;
    object.finish()?;
    Ok(tools)
}

fn read_agent(input: Input<'_>) -> Result<AgentChoice, RequestError> {
    if input.is_string() {
        let id = input.text(1..=MAX_ID)?;
        return Ok(AgentChoice { id, version: None, overrides: AgentOverrides::default() });
    }
    let mut object = input.object()?;
    let has_overrides = object.kind(&[("agent", false), ("agent_with_overrides", true)])?;
    let choice = AgentChoice {
        id: object.required("id")?.text(1..=MAX_ID)?,
        version: object.optional("version").map(|version| version.integer(1..=u64::MAX)).transpose()?,
        overrides: if has_overrides { read_overrides(&mut object)? } else { AgentOverrides::default() },
    };
    object.finish()?;
    Ok(choice)
}

fn read_overrides(object: &mut ObjectInput<'_>) -> Result<AgentOverrides, RequestError> {
    Ok(AgentOverrides {
        mcp_servers: patch_mcp_servers(object)?,
        model: required_if_present(object, "model")?.map(ModelConfig::read).transpose()?,
        skills: object.patch("skills", read_skills)?,
        system: patch_text(object, "system", MAX_SYSTEM)?,
        tools: object.patch("tools", read_tools)?,
    })
}

fn read_resources(input: Input<'_>) -> Result<Vec<ResourceCreate>, RequestError> {
    input
        .array("resources", MAX_FILES)?
        .into_iter()
        .map(|input| input.read_object(ResourceCreate::read))
        .collect()
}
