//! One layer of settings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use conjure_egress::AddressRange;
use conjure_mcp::McpServerSpec;
use conjure_sandbox::{DiskLimit, Isolation, NetworkPolicy};
use serde::Deserialize;

use crate::config::sections::artifacts::ArtifactSettings;
use crate::config::sections::compaction::CompactionSettings;
use crate::config::sections::mcp;
use crate::config::sections::models::{self, ModelSettings};
use crate::config::sections::pool::PoolSettings;
use crate::config::sections::sandbox::ExecutorKind;
use crate::config::sections::serve::ServeSettings;
use crate::config::sections::skills::SkillSettings;
use crate::config::values;

/// The version of the Messages API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
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
/// Paths may begin with `~`. [`Config::from_layers`](crate::config::Config::from_layers) reads a configuration file: it checks the names of the
/// keys and the values. Deserializing alone does not.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Directories of skills, instead of the default scopes. If two skills have the same name, the one in the earlier directory
    /// is used.
    pub skill_paths: Option<Vec<PathBuf>>,
    /// Project directories whose own skills may be loaded.
    pub trusted_projects: Option<Vec<PathBuf>>,
    /// The kind of sandbox that runs the tools.
    pub executor: Option<ExecutorKind>,
    /// The image of containers.
    pub image: Option<String>,
    /// The runtime that runs containers, such as `runsc`.
    pub runtime: Option<String>,
    /// The user that runs commands in containers, instead of the workspace's owner.
    pub container_user: Option<String>,
    /// Additional directories of this machine in containers: `HOST:TARGET`, or `HOST:TARGET:rw` if commands may write them.
    pub volumes: Option<Vec<String>>,
    /// The address of the container engine: `unix:///path/to/socket`, `tcp://host:port`.
    pub engine: Option<String>,
    /// The timeout of a tool call.
    #[serde(deserialize_with = "values::seconds")]
    pub tool_timeout: Option<Duration>,
    /// The most model calls for one message.
    pub max_iterations: Option<u32>,
    /// Which hosts a sandbox may reach.
    #[serde(deserialize_with = "values::network")]
    pub network: Option<NetworkPolicy>,
    /// The private addresses that sandboxes may reach, at hosts that their network policy permits.
    #[serde(deserialize_with = "values::ranges")]
    pub private_addresses: Option<Vec<AddressRange>>,
    /// Directories that tools may read and write, in addition to the workspace.
    pub allowed_paths: Option<Vec<PathBuf>>,
    /// The data directory: the directories of sandboxes, and the store of their contents.
    pub data: Option<PathBuf>,
    /// The memory limit in bytes for all processes of a sandbox together. It is an error if the machine cannot
    /// enforce it.
    #[serde(deserialize_with = "values::size")]
    pub memory: Option<u64>,
    /// How many processors a sandbox may use. It is an error if the machine cannot enforce it.
    pub cpus: Option<f64>,
    /// Which party enforces the workspace's disk limit. It is an error if the kernel is to enforce it and cannot.
    #[serde(deserialize_with = "values::disk_limit")]
    pub disk_limit: Option<DiskLimit>,
    /// What a sandbox must enforce. A layer can add requirements, but not remove those of the lower layers.
    #[serde(rename = "require", deserialize_with = "values::floor")]
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
    #[serde(deserialize_with = "values::seconds")]
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
    #[serde(deserialize_with = "mcp::servers")]
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
            floor: merged(self.floor, lower.floor, |upper, lower| upper.or(&lower)),
            model: self.model.or(lower.model),
            base_url: self.base_url.or(lower.base_url),
            profile: self.profile.or(lower.profile),
            max_tokens: self.max_tokens.or(lower.max_tokens),
            model_timeout: self.model_timeout.or(lower.model_timeout),
            pool: merged(self.pool, lower.pool, PoolSettings::merged_over),
            compaction: merged(self.compaction, lower.compaction, CompactionSettings::merged_over),
            skills: merged(self.skills, lower.skills, SkillSettings::merged_over),
            artifacts: merged(self.artifacts, lower.artifacts, ArtifactSettings::merged_over),
            models: lower.models.into_iter().chain(self.models).collect(),
            mcp: lower.mcp.into_iter().chain(self.mcp).collect(),
            serve: self.serve.merged_over(lower.serve),
        }
    }

    /// Checks the values. An error is the key with the reason.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let in_key = |key| move |reason| (key, reason);
        let require = |key, fits: bool, rule: &str| if fits { Ok(()) } else { Err((key, rule.to_owned())) };
        for (key, timeout) in [("tool_timeout", self.tool_timeout), ("model_timeout", self.model_timeout)] {
            let fits = timeout.is_none_or(|time| !time.is_zero() && time <= values::MAX_TIMEOUT);
            require(key, fits, "it must be more than 0 seconds and at most a year")?;
        }
        require("max_tokens", self.max_tokens != Some(0), "it must be at least 1")?;
        require("max_iterations", self.max_iterations != Some(0), "it must be at least 1")?;
        self.pool.unwrap_or_default().check().map_err(in_key("pool"))?;
        self.compaction.unwrap_or_default().check().map_err(in_key("compaction"))?;
        self.skills.as_ref().map_or(Ok(()), SkillSettings::check).map_err(in_key("skills"))?;
        self.artifacts.as_ref().map_or(Ok(()), ArtifactSettings::check).map_err(in_key("artifacts"))?;
        models::check(&self.models).map_err(in_key("models"))?;
        self.serve.check().map_err(in_key("serve"))
    }

    /// All paths, each with its key.
    pub(super) fn paths_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut PathBuf)> {
        let ServeSettings { skills, certificate, private_key, .. } = &mut self.serve;
        let lists = [
            ("skill_paths", self.skill_paths.as_mut()),
            ("trusted_projects", self.trusted_projects.as_mut()),
            ("allowed_paths", self.allowed_paths.as_mut()),
            ("artifacts.allowed_dirs", self.artifacts.as_mut().and_then(|own| own.allowed_dirs.as_mut())),
        ];
        let listed =
            lists.into_iter().flat_map(|(key, list)| list.into_iter().flatten().map(move |path| (key, path)));
        let data = self.data.iter_mut().map(|path| ("data", path));
        let serve = skills.values_mut().chain(certificate).chain(private_key).map(|path| ("serve", path));
        listed.chain(data).chain(serve)
    }
}

/// Merges two layers of one setting, if both have it.
fn merged<T>(upper: Option<T>, lower: Option<T>, merge: impl FnOnce(T, T) -> T) -> Option<T> {
    match (upper, lower) {
        (Some(upper), Some(lower)) => Some(merge(upper, lower)),
        (one, other) => one.or(other),
    }
}
