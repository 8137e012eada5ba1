//! Environments: templates for the sandboxes of sessions.

use serde::{Deserialize, Serialize};

use crate::agents::agent::{MAX_DESCRIPTION, MAX_NAME, read_text};
use crate::common::input::{Input, ObjectInput, Patch};
use crate::common::metadata::{self, Metadata, MetadataPatch};
use crate::{EnvironmentId, RequestBody, RequestError, Time};

const MAX_HOSTS: usize = 1_000;
const MAX_HOST: usize = 253;
const MAX_PACKAGES: usize = 256;
const MAX_PACKAGE: usize = 256;

/// An environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "environment")]
pub struct Environment {
    /// The id of the environment.
    pub id: EnvironmentId,
    /// When it was archived; null while it is in use.
    pub archived_at: Option<Time>,
    /// Where its sandboxes run, and their network and packages.
    pub config: EnvironmentConfig,
    /// When it was created.
    pub created_at: Time,
    /// A description for people.
    pub description: Option<String>,
    /// Key-value pairs of the client.
    pub metadata: Metadata,
    /// A name, unique among the tenant's environments.
    pub name: String,
    /// Who can see it: all users of the tenant.
    pub scope: Option<EnvironmentScope>,
    /// When it was last changed.
    pub updated_at: Time,
}

/// Who can see an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnvironmentScope {
    /// All users of the tenant.
    Organization,
}

/// Where the sandboxes of an environment run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EnvironmentConfig {
    /// On this server.
    Cloud(CloudConfig),
    /// On the client's own workers.
    SelfHosted,
}

/// The configuration of sandboxes on this server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CloudConfig {
    /// Which hosts commands may reach.
    pub networking: Networking,
    /// The packages to install.
    pub packages: Packages,
}

/// Which hosts commands in a sandbox may reach.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Networking {
    /// All hosts that the server's own policy allows.
    #[default]
    Unrestricted,
    /// The listed hosts only.
    Limited(LimitedNetworking),
}

/// The hosts that commands may reach.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitedNetworking {
    /// Whether commands may also reach the agent's MCP servers.
    pub allow_mcp_servers: bool,
    /// Whether commands may also reach the public package registries.
    pub allow_package_managers: bool,
    /// The names of the allowed hosts.
    pub allowed_hosts: Vec<String>,
}

/// The packages to install in a sandbox, by package manager.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "type", rename = "packages")]
#[expect(missing_docs, reason = "the names are those of package managers")]
pub struct Packages {
    pub apt: Vec<String>,
    pub cargo: Vec<String>,
    pub gem: Vec<String>,
    pub go: Vec<String>,
    pub npm: Vec<String>,
    pub pip: Vec<String>,
}

/// The body of `POST /v1/environments`.
#[derive(Debug, Clone)]
pub struct EnvironmentCreate {
    /// A name that no other environment of the tenant has.
    pub name: String,
    /// Where the sandboxes run.
    pub config: EnvironmentConfig,
    /// A description for people.
    pub description: Option<String>,
    /// Key-value pairs of the client.
    pub metadata: Metadata,
}

/// The body of `POST /v1/environments/{id}`. Absent fields keep their values.
#[derive(Debug, Clone)]
pub struct EnvironmentUpdate {
    /// The changes of the configuration.
    pub config: Option<ConfigUpdate>,
    /// A description for people. An empty text is stored as it is.
    pub description: Patch<String>,
    /// The keys to set or to remove.
    pub metadata: MetadataPatch,
    /// A name that no other environment of the tenant has.
    pub name: Option<String>,
}

/// The changes of an environment's configuration. Absent fields keep their values.
#[derive(Debug, Clone)]
pub enum ConfigUpdate {
    /// For an environment of this server.
    Cloud(CloudUpdate),
    /// For an environment of the client's workers. It has nothing to change.
    SelfHosted,
}

/// The changes of the configuration of sandboxes on this server.
#[derive(Debug, Clone)]
pub struct CloudUpdate {
    networking: Option<NetworkingUpdate>,
    packages: Option<PackagesUpdate>,
}

#[derive(Debug, Clone)]
enum NetworkingUpdate {
    Unrestricted,
    Limited {
        allow_mcp_servers: Option<bool>,
        allow_package_managers: Option<bool>,
        allowed_hosts: Option<Vec<String>>,
    },
}

/// The lists in the order of [`MANAGERS`].
type PackagesUpdate = [Option<Vec<String>>; 6];

const MANAGERS: [&str; 6] = ["apt", "cargo", "gem", "go", "npm", "pip"];

impl Packages {
    /// Each package manager with the packages that it installs.
    #[must_use]
    pub fn by_manager(&self) -> [(&'static str, &[String]); 6] {
        let lists: [&[String]; 6] = [&self.apt, &self.cargo, &self.gem, &self.go, &self.npm, &self.pip];
        std::array::from_fn(|index| (MANAGERS[index], lists[index]))
    }

    /// Whether there are no packages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_manager().iter().all(|(_, packages)| packages.is_empty())
    }

    fn apply(&mut self, update: PackagesUpdate) {
        let lists =
            [&mut self.apt, &mut self.cargo, &mut self.gem, &mut self.go, &mut self.npm, &mut self.pip];
        for (list, update) in lists.into_iter().zip(update) {
            if let Some(update) = update {
                *list = update;
            }
        }
    }
}

impl CloudConfig {
    /// The configuration after an update.
    ///
    /// # Errors
    /// If packages are requested but the network allows no package manager.
    pub fn updated(mut self, update: CloudUpdate) -> Result<Self, RequestError> {
        match update.networking {
            None => {}
            Some(NetworkingUpdate::Unrestricted) => self.networking = Networking::Unrestricted,
            Some(NetworkingUpdate::Limited { allow_mcp_servers, allow_package_managers, allowed_hosts }) => {
                let mut limited = match self.networking {
                    Networking::Limited(limited) => limited,
                    Networking::Unrestricted => LimitedNetworking::default(),
                };
                limited.allow_mcp_servers = allow_mcp_servers.unwrap_or(limited.allow_mcp_servers);
                limited.allow_package_managers =
                    allow_package_managers.unwrap_or(limited.allow_package_managers);
                limited.allowed_hosts = allowed_hosts.unwrap_or(limited.allowed_hosts);
                self.networking = Networking::Limited(limited);
            }
        }
        if let Some(packages) = update.packages {
            self.packages.apply(packages);
        }
        let reaches_registries = match &self.networking {
            Networking::Unrestricted => true,
            Networking::Limited(limited) => limited.allow_package_managers,
        };
        if !self.packages.is_empty() && !reaches_registries {
            return Err(RequestError::new(
                "config.packages",
                "the network is `limited` without package managers; set `config.networking.allow_package_managers` \
                 to true, or remove the packages",
            ));
        }
        Ok(self)
    }
}

impl RequestBody for EnvironmentCreate {
    fn read(object: &mut ObjectInput<'_>) -> Result<Self, RequestError> {
        let config = match object.optional("config").map(read_config).transpose()? {
            None => EnvironmentConfig::Cloud(CloudConfig::default()),
            Some(ConfigUpdate::SelfHosted) => EnvironmentConfig::SelfHosted,
            Some(ConfigUpdate::Cloud(cloud)) => {
                EnvironmentConfig::Cloud(CloudConfig::default().updated(cloud)?)
            }
        };
        read_scope(object)?;
        Ok(Self {
            name: object.required("name")?.text(1..=MAX_NAME)?,
            config,
            description: read_text(object, "description", MAX_DESCRIPTION)?,
            metadata: metadata::read(object)?,
        })
    }
}

impl RequestBody for EnvironmentUpdate {
    fn read(object: &mut ObjectInput<'_>) -> Result<Self, RequestError> {
        read_scope(object)?;
        Ok(Self {
            config: object.optional("config").map(read_config).transpose()?,
            description: object.patch("description", |input| input.text(0..=MAX_DESCRIPTION))?,
            // For environments, an empty value removes a key, as null does.
            metadata: metadata::read_patch(object)?
                .into_iter()
                .map(|(key, value)| (key, value.filter(|value| !value.is_empty())))
                .collect(),
            name: object.optional("name").map(|name| name.text(1..=MAX_NAME)).transpose()?,
        })
    }
}

fn read_scope(object: &mut ObjectInput<'_>) -> Result<(), RequestError> {
    let Some(scope) = object.optional("scope") else { return Ok(()) };
    if scope.one_of(&[("organization", true), ("account", false)])? {
        return Ok(());
    }
    Err(scope
        .error("environments belong to the tenant of the key; leave `scope` out, or give `organization`"))
}

fn read_config(input: Input<'_>) -> Result<ConfigUpdate, RequestError> {
    let mut object = input.object()?;
    if !object.kind(&[("cloud", true), ("self_hosted", false)])? {
        object.finish()?;
        return Ok(ConfigUpdate::SelfHosted);
    }
    let cloud = CloudUpdate {
        networking: object.optional("networking").map(read_networking).transpose()?,
        packages: object.optional("packages").map(read_packages).transpose()?,
    };
    object.finish()?;
    Ok(ConfigUpdate::Cloud(cloud))
}

fn read_networking(input: Input<'_>) -> Result<NetworkingUpdate, RequestError> {
    let mut object = input.object()?;
    let networking = if object.kind(&[("unrestricted", true), ("limited", false)])? {
        NetworkingUpdate::Unrestricted
    } else {
        NetworkingUpdate::Limited {
            allow_mcp_servers: object.optional("allow_mcp_servers").map(|flag| flag.boolean()).transpose()?,
            allow_package_managers: object
                .optional("allow_package_managers")
                .map(|flag| flag.boolean())
                .transpose()?,
            allowed_hosts: object
                .optional("allowed_hosts")
                .map(|hosts| read_texts(hosts, "hosts", MAX_HOSTS, MAX_HOST))
                .transpose()?,
        }
    };
    object.finish()?;
    Ok(networking)
}

fn read_packages(input: Input<'_>) -> Result<PackagesUpdate, RequestError> {
    let mut object = input.object()?;
    if let Some(kind) = object.optional("type") {
        kind.one_of(&[("packages", ())])?;
    }
    let mut update = PackagesUpdate::default();
    for (list, manager) in update.iter_mut().zip(MANAGERS) {
        if let Some(input) = object.optional(manager) {
            *list = Some(read_texts(input, "packages", MAX_PACKAGES, MAX_PACKAGE)?);
        }
    }
    object.finish()?;
    Ok(update)
}

fn read_texts(
    input: Input<'_>,
    what: &str,
    max: usize,
    max_length: usize,
) -> Result<Vec<String>, RequestError> {
    input.array(what, max)?.iter().map(|text| text.text(1..=max_length)).collect()
}
