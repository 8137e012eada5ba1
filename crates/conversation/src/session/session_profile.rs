//! The recorded settings of a session, from which another process revives it.
//!
//! The profile holds only names. The process that revives the session finds the model, the skills and the sandbox by these names,
//! or reports what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::session::hosted::HostedSkill;
use crate::session::pinned_skill::PinnedSkill;
use crate::state::limits::Limits;
use crate::tools::agent_toolset::AgentToolset;
use crate::tools::tool::ToolDefinition;
use crate::tools::tool_server::RemoteToolServer;

/// The settings of a session, as its first event records them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionProfile {
    /// The embedder's instructions, before all others.
    pub base_prompt: String,
    /// The skills that the model may use. A reload of a catalog does not change them.
    pub skills: Vec<PinnedSkill>,
    /// How the model loads the instructions of a skill. Sessions without this field use `view`.
    #[serde(
        default = "SkillActivation::for_old_sessions",
        skip_serializing_if = "SkillActivation::is_for_old_sessions"
    )]
    pub activation: SkillActivation,
    /// Where the instructions of an active skill are delivered.
    #[serde(skip_serializing_if = "SkillDelivery::is_default")]
    pub delivery: SkillDelivery,
    /// The hosted skills, which the model's service runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosted: Vec<HostedSkill>,
    /// The default limits of a turn.
    pub limits: Limits,
    /// The maximum cost of all model calls of the session together, in millionths of a dollar; `None`: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_micros: Option<u64>,
    /// The model's name in the embedder's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How hard the model works on each call, such as `high`, if its service has this setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Whether the service generates output faster, at a higher price, if it offers that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fast: bool,
    /// The sandbox's name in the embedder's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executor: Option<String>,
    /// The catalog of the skills, by its name in the embedder's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalog: Option<String>,
    /// The workspace directory that the embedder named; `None`: a private one. The path must be UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// Directories of the workspace that commands also see at another path: that path, and the directory relative to the workspace.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub workspace_mounts: BTreeMap<String, String>,
    /// The hosts that the session may reach, of those that the embedder's configuration permits. `None`: all of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_hosts: Option<Vec<String>>,
    /// Python packages that its sandboxes have, with version requirements where needed: `pandas`, `requests>=2.31`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub python_packages: Vec<String>,
    /// Environment variables of its commands.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// The inputs that the manifests of its skills require, except sensitive ones.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, Value>,
    /// The names of its secrets, whose values are not recorded. The process that revives the session provides them again.
    #[serde(rename = "withheld", skip_serializing_if = "SecretNames::is_empty")]
    pub secret_names: SecretNames,
    /// The tools of the toolset, instead of the built-in tools. `None`: the built-in tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toolset: Option<AgentToolset>,
    /// The MCP servers whose tools the session has, by their names in the embedder's configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<String>,
    /// The MCP servers that the session's creator named by their addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remote_servers: Vec<RemoteToolServer>,
    /// The vaults with the credentials for its remote servers, by their ids. The first one that has a credential for a server is
    /// used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vaults: Vec<String>,
    /// The tools whose results the client provides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub client_tools: Vec<ToolDefinition>,
    /// The session's title for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Data of the embedder, which the library does not read.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl SessionProfile {
    /// Gives the session another model. The effort and the speed were chosen for the former one, and another model may refuse them.
    pub fn set_model(&mut self, name: String) {
        self.model = Some(name);
        self.effort = None;
        self.fast = false;
    }
}

/// The names of values that are not recorded because they may be secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretNames {
    /// Environment variables of commands.
    pub environment: BTreeSet<String>,
    /// Values that commands do not get, and that are redacted from output.
    pub secrets: BTreeSet<String>,
    /// Inputs that the manifests of skills mark as sensitive.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub inputs: BTreeSet<String>,
}

/// How the model loads a skill's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkillActivation {
    /// It loads the skill with `skills.load`, which makes the skill active.
    #[default]
    Load,
    /// It reads `SKILL.md` with the `view` tool.
    View,
}

impl SkillActivation {
    const fn for_old_sessions() -> Self {
        Self::View
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    const fn is_for_old_sessions(&self) -> bool {
        matches!(self, Self::View)
    }
}

/// Where the instructions of an active skill are delivered to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkillDelivery {
    /// In the system prompt of each call while the skill is active. A change invalidates the service's cache.
    #[default]
    Instructions,
    /// In the result of `skills.load`. The prefix stays unchanged, also when the skill is unloaded.
    Result,
}

impl SkillDelivery {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    const fn is_default(&self) -> bool {
        matches!(self, Self::Instructions)
    }
}

impl SecretNames {
    /// Whether the session has no secrets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.environment.is_empty() && self.secrets.is_empty() && self.inputs.is_empty()
    }
}
