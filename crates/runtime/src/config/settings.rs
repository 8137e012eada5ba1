//! One layer of settings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use conjure_egress::AddressRange;
use conjure_mcp::McpServerSpec;
use conjure_sandbox::{DiskLimit, Isolation, NetworkPolicy};

use crate::config::sections::artifacts::ArtifactSettings;
use crate::config::sections::compaction::CompactionSettings;
use crate::config::sections::models::{self, ModelSettings};
use crate::config::sections::pool::PoolSettings;
use crate::config::sections::sandbox::ExecutorKind;
use crate::config::sections::serve::ServeSettings;
use crate::config::sections::skills::SkillSettings;

/// The longest duration of a setting: a year. With this limit, arithmetic on it never overflows.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The version of the Messages API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ApiProfile {
    /// Version `2023-06-01`, with the key in a header of its own. The service is known to support it.
    #[default]
    Beta,
    /// Version `2026-10-21`, with the key as a bearer token.
    Current,
}

impl FromStr for ApiProfile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "beta" => Ok(Self::Beta),
            "current" => Ok(Self::Current),
            _ => Err(format!("there is no profile `{text}`; there are `beta` and `current`")),
        }
    }
}

/// One layer of settings. A `None` leaves the choice to the layer below.
///
/// Paths may begin with `~`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Folders of skills, instead of the default scopes. If two skills have the same name, the one in the earlier folder
    /// is used.
    pub skill_paths: Option<Vec<PathBuf>>,
    /// Project folders whose own skills may be loaded.
    pub trusted_projects: Option<Vec<PathBuf>>,
    /// The kind of sandbox that runs the tools.
    pub executor: Option<ExecutorKind>,
    /// The image of containers.
    pub image: Option<String>,
    /// The runtime that runs containers, such as `runsc`.
    pub runtime: Option<String>,
    /// The user that runs commands in containers, instead of the workspace's owner.
    pub container_user: Option<String>,
    /// Additional folders of this machine in containers: `HOST:TARGET`, or `HOST:TARGET:rw` if commands may write them.
    pub volumes: Option<Vec<String>>,
    /// The address of the container engine: `unix:///path/to/socket`, `tcp://host:port`.
    pub engine: Option<String>,
    /// The timeout of a tool call.
    pub tool_timeout: Option<Duration>,
    /// The most model calls for one message.
    pub max_iterations: Option<u32>,
    /// Which hosts a sandbox may reach.
    pub network: Option<NetworkPolicy>,
    /// The private addresses that sandboxes may reach, at hosts that their network policy permits.
    pub private_addresses: Option<Vec<AddressRange>>,
    /// Folders that tools may read and write, in addition to the workspace.
    pub allowed_paths: Option<Vec<PathBuf>>,
    /// The data folder: the folders of sandboxes, and the store of their contents.
    pub data: Option<PathBuf>,
    /// The memory limit in bytes for all processes of a sandbox together. It is an error if the machine cannot
    /// enforce it.
    pub memory: Option<u64>,
    /// How many processors a sandbox may use. It is an error if the machine cannot enforce it.
    pub cpus: Option<f64>,
    /// Which party enforces the workspace's disk limit. It is an error if the kernel is to enforce it and cannot.
    pub disk_limit: Option<DiskLimit>,
    /// What a sandbox must enforce. A layer can add requirements, but not remove those of the lower layers.
    pub floor: Option<Isolation>,
    /// The model of sessions that name none.
    pub model: Option<String>,
    /// The address of the Messages API.
    pub base_url: Option<String>,
    /// The version of its API.
    pub profile: Option<ApiProfile>,
    /// The token limit of a response.
    pub max_tokens: Option<u32>,
    /// The timeout of a model call, including its retries.
    pub model_timeout: Option<Duration>,
    /// The warm pools; each setting is merged over that of the lower layer.
    pub pool: Option<PoolSettings>,
    /// When long conversations are compacted; each setting is merged over that of the lower layer.
    pub compaction: Option<CompactionSettings>,
    /// How sessions use their skills; each setting is merged over that of the lower layer.
    pub skills: Option<SkillSettings>,
    /// The artifacts of sessions; each setting is merged over that of the lower layer.
    pub artifacts: Option<ArtifactSettings>,
    /// The configured models by name. If several layers have the same name, the uppermost layer's model is used.
    pub models: BTreeMap<String, ModelSettings>,
    /// The MCP servers by name. If several layers have the same name, the uppermost layer's server is used.
    pub mcp: BTreeMap<String, McpServerSpec>,
    /// What clients of the server may name; merged over that of the lower layer.
    pub serve: ServeSettings,
}

impl Settings {
    /// Merges this layer over `lower`.
    #[must_use]
    pub fn merged_over(self, lower: Self) -> Self {
        Self {
            skill_paths: self.skill_paths.or(lower.skill_paths),
            trusted_projects: self.trusted_projects.or(lower.trusted_projects),
            executor: self.executor.or(lower.executor),
            image: self.image.or(lower.image),
            runtime: self.runtime.or(lower.runtime),
            container_user: self.container_user.or(lower.container_user),
            volumes: self.volumes.or(lower.volumes),
            engine: self.engine.or(lower.engine),
            tool_timeout: self.tool_timeout.or(lower.tool_timeout),
            max_iterations: self.max_iterations.or(lower.max_iterations),
            network: self.network.or(lower.network),
            private_addresses: self.private_addresses.or(lower.private_addresses),
            allowed_paths: self.allowed_paths.or(lower.allowed_paths),
            data: self.data.or(lower.data),
            memory: self.memory.or(lower.memory),
            cpus: self.cpus.or(lower.cpus),
            disk_limit: self.disk_limit.or(lower.disk_limit),
            floor: match (self.floor, lower.floor) {
                (Some(upper), Some(lower)) => Some(upper.or(&lower)),
                (one, other) => one.or(other),
            },
            model: self.model.or(lower.model),
            base_url: self.base_url.or(lower.base_url),
            profile: self.profile.or(lower.profile),
            max_tokens: self.max_tokens.or(lower.max_tokens),
            model_timeout: self.model_timeout.or(lower.model_timeout),
            pool: match (self.pool, lower.pool) {
                (Some(upper), Some(lower)) => Some(upper.merged_over(lower)),
                (one, other) => one.or(other),
            },
            compaction: match (self.compaction, lower.compaction) {
                (Some(upper), Some(lower)) => Some(upper.merged_over(lower)),
                (one, other) => one.or(other),
            },
            skills: match (self.skills, lower.skills) {
                (Some(upper), Some(lower)) => Some(upper.merged_over(lower)),
                (one, other) => one.or(other),
            },
            artifacts: match (self.artifacts, lower.artifacts) {
                (Some(upper), Some(lower)) => Some(upper.merged_over(lower)),
                (one, other) => one.or(other),
            },
            models: models::merged(self.models, lower.models),
            mcp: lower.mcp.into_iter().chain(self.mcp).collect(),
            serve: self.serve.merged_over(lower.serve),
        }
    }
}

/// Parses a number of seconds from a file or a variable.
pub(crate) fn parse_seconds(seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| !duration.is_zero() && *duration <= MAX_TIMEOUT)
        .ok_or_else(|| format!("{seconds} is not a number of seconds between 0 and a year"))
}
