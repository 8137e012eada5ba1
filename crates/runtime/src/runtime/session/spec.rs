//! The specification of a new session.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_artifact::RegistrationSource;
use conjure_base::TenantId;
use conjure_conversation::{
    AgentToolset, HostedSkill, Limits, Message, RemoteToolServer, SkillActivation, SkillDelivery,
    ToolDefinition,
};
use conjure_mcp::McpServerSpec;
use conjure_sandbox::NetworkPolicy;
use conjure_skill::Skill;
use serde_json::Value;

use crate::runtime::session::input::session_secrets::SessionSecrets;
use crate::runtime::session::python::python_requirement::PythonRequirement;
use crate::runtime::session::select_skills::SkillSelection;

/// The name that means "no sandbox".
pub(crate) const NO_SANDBOX: &str = "none";

/// The specification of a new session.
///
/// ```
/// use conjure::{SessionSpec, TenantId};
///
/// let spec = SessionSpec::new(TenantId::new("acme")?)
///     .base_prompt("You help with sales.")
///     .skills(["sales-report"])
///     .environment("REGION", "north")
///     .secret("CRM_KEY", "hunter2");
/// // A value may be a secret, so none shows.
/// assert!(!format!("{spec:?}").contains("hunter2"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SessionSpec {
    pub(crate) tenant: TenantId,
    pub(crate) base_prompt: String,
    pub(crate) skills: SkillSelection,
    pub(crate) loaded_skills: Vec<Arc<Skill>>,
    pub(crate) catalog: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) effort: Option<String>,
    pub(crate) fast: bool,
    pub(crate) executor: Option<String>,
    pub(crate) activation: Option<SkillActivation>,
    pub(crate) delivery: Option<SkillDelivery>,
    pub(crate) limits: Option<Limits>,
    pub(crate) max_cost_micros: Option<u64>,
    pub(crate) hosted: Vec<HostedSkill>,
    pub(crate) workspace: Option<PathBuf>,
    pub(crate) secrets: SessionSecrets,
    pub(crate) artifacts: Vec<(String, RegistrationSource)>,
    pub(crate) toolset: Option<AgentToolset>,
    pub(crate) workspace_mounts: BTreeMap<String, String>,
    pub(crate) network: NetworkPolicy,
    pub(crate) python_packages: Vec<PythonRequirement>,
    pub(crate) mcp_servers: Vec<String>,
    pub(crate) remote_servers: Vec<RemoteToolServer>,
    pub(crate) vaults: Vec<String>,
    pub(crate) client_tools: Vec<ToolDefinition>,
    pub(crate) title: Option<String>,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) history: Vec<Message>,
}

impl SessionSpec {
    /// A session of this tenant. It has all skills of the default catalog, the default model, a sandbox of the configured
    /// kind, and a workspace of its own.
    #[must_use]
    pub fn new(tenant: TenantId) -> Self {
        Self {
            tenant,
            base_prompt: String::new(),
            skills: SkillSelection::All,
            loaded_skills: Vec::new(),
            catalog: None,
            model: None,
            effort: None,
            fast: false,
            executor: None,
            activation: None,
            delivery: None,
            limits: None,
            max_cost_micros: None,
            hosted: Vec::new(),
            workspace: None,
            secrets: SessionSecrets::default(),
            artifacts: Vec::new(),
            toolset: None,
            workspace_mounts: BTreeMap::new(),
            network: NetworkPolicy::Full,
            python_packages: Vec::new(),
            mcp_servers: Vec::new(),
            remote_servers: Vec::new(),
            vaults: Vec::new(),
            client_tools: Vec::new(),
            title: None,
            metadata: BTreeMap::new(),
            history: Vec::new(),
        }
    }

    /// Puts these instructions before all others.
    #[must_use]
    pub fn base_prompt(mut self, text: impl Into<String>) -> Self {
        self.base_prompt = text.into();
        self
    }

    /// Selects the skills of these names, and no others. The session keeps them as they are now: later edits or removals
    /// do not change it.
    #[must_use]
    pub fn skills<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.skills = SkillSelection::Named(names.into_iter().map(Into::into).collect());
        self
    }

    /// Selects no skills.
    #[must_use]
    pub fn without_skills(self) -> Self {
        self.skills::<String>([])
    }

    /// Adds skills that are in no catalog, in addition to the selected ones. The session keeps them as they are now, so their
    /// directories may be removed once the session is open. Their names must differ from those of the other skills.
    #[must_use]
    pub fn loaded_skills(mut self, skills: impl IntoIterator<Item = Arc<Skill>>) -> Self {
        self.loaded_skills.extend(skills);
        self
    }

    /// Selects from the catalog of this name: the tenant's own, if it has one, else the embedder's.
    #[must_use]
    pub fn catalog(mut self, name: impl Into<String>) -> Self {
        self.catalog = Some(name.into());
        self
    }

    /// Sets how the model gets the skills' instructions. Without this the configuration decides. By default the model
    /// loads a skill with a tool.
    #[must_use]
    pub const fn activation(mut self, activation: SkillActivation) -> Self {
        self.activation = Some(activation);
        self
    }

    /// Sets where the instructions of loaded skills are put. Without this the configuration decides. By default they are
    /// put in the top-level instructions.
    ///
    /// - In the top-level instructions, they stay as long as the skill is loaded, even if the history is compacted. But
    ///   after each load and unload, the model's service must read the history again.
    /// - In the result of the load, cached content stays valid. But instructions that are no longer needed stay, too.
    #[must_use]
    pub const fn delivery(mut self, delivery: SkillDelivery) -> Self {
        self.delivery = Some(delivery);
        self
    }

    /// Uses the model of this name.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.model = Some(name.into());
        self
    }

    /// Tells the model's service how much effort the model makes on each call: `low`, `medium`, `high`, or a name that
    /// the service defines.
    ///
    /// It is sent to services of the Messages API and of Responses, which check the name. Others ignore it. It does not
    /// apply to a model that the session gets later.
    #[must_use]
    pub fn effort(mut self, effort: impl Into<String>) -> Self {
        self.effort = Some(effort.into());
        self
    }

    /// Asks the model's service for faster output, at a higher price. It is sent to services of the Messages API; others
    /// ignore it.
    ///
    /// Costs are still counted at the usual price of the model. To count the higher price, configure the model under a
    /// name and a `price` of its own.
    #[must_use]
    pub const fn fast(mut self, fast: bool) -> Self {
        self.fast = fast;
        self
    }

    /// Uses the sandbox of this name: `jail`, `docker`, `local`, `none` ([`SessionSpec::without_sandbox`]), or one of the
    /// embedder's own. It must meet the isolation requirements of the configuration, too.
    #[must_use]
    pub fn sandbox(mut self, name: impl Into<String>) -> Self {
        self.executor = Some(name.into());
        self
    }

    /// Adds hosted skills, which the model's service runs in its own containers: at most 8.
    ///
    /// Without [`SessionSpec::skills`], [`SessionSpec::catalog`] or [`SessionSpec::workspace`], the session then has no
    /// skills of a catalog and no sandbox, and runs nothing on this machine. With one of them it has both kinds.
    ///
    /// [`Session::files`](conjure_actors::session::Session::files) lists the produced files, wherever they are stored. If
    /// the response of a call is lost, it is unknown what the service did. So such a call is not retried automatically.
    ///
    /// ```
    /// use conjure::{SessionSpec, TenantId};
    /// use conjure::hosted::HostedSkill;
    ///
    /// let spec = SessionSpec::new(TenantId::new("acme")?)
    ///     .hosted([HostedSkill::anthropic("xlsx"), HostedSkill::custom("skill_01AbCdEf").with_version("1759178010641129")]);
    /// # let _ = spec;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn hosted(mut self, skills: impl IntoIterator<Item = HostedSkill>) -> Self {
        self.hosted = skills.into_iter().collect();
        self
    }

    /// Uses no sandbox. The model then has neither the built-in tools nor scripts of skills.
    #[must_use]
    pub fn without_sandbox(self) -> Self {
        self.sandbox(NO_SANDBOX)
    }

    /// Gives the model the tools of the toolset `agent_toolset_20260401`, instead of `view`, `bash_tool`, `create_file`
    /// and `str_replace`. Its `bash` is one shell that keeps its state between calls. Skills are then loaded by a tool,
    /// whatever [`SessionSpec::activation`] says. The choice is recorded.
    ///
    /// ```
    /// use conjure::{SessionSpec, TenantId};
    /// use conjure::tool::{AgentToolset, PermissionPolicy, ToolsetTool};
    ///
    /// // A person decides on each command.
    /// let toolset = AgentToolset::all().with(ToolsetTool::Bash, PermissionPolicy::AlwaysAsk);
    /// let spec = SessionSpec::new(TenantId::new("acme")?).toolset(toolset);
    /// # let _ = spec;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn toolset(mut self, toolset: AgentToolset) -> Self {
        self.toolset = Some(toolset);
        self
    }

    /// Gives a directory of the session's own workspace a second path in its sandboxes, such as `/mnt/session/uploads`
    /// for `uploads`. The directory is created if it is missing. Only jails have the second path. The mount is recorded.
    #[must_use]
    pub fn workspace_mount(mut self, dir: impl Into<String>, target: impl Into<String>) -> Self {
        self.workspace_mounts.insert(target.into(), dir.into());
        self
    }

    /// Narrows what the session reaches of the network. The default, [`NetworkPolicy::Full`], narrows nothing. The policy
    /// is recorded, and cannot be changed.
    ///
    /// - Its sandboxes reach only hosts that all three permit: the configuration
    ///   ([`Config::network`](crate::Config::network)), the tenant's policy
    ///   ([`TenantPolicy::network`](crate::TenantPolicy::network)) and this policy.
    /// - URLs are fetched for the session only from hosts that the tenant's policy and this policy permit.
    ///
    /// It does not limit MCP servers: the caller that names a server decides what the session reaches through it. A
    /// sandbox that cannot enforce the policy, such as `local`, is refused
    /// ([`RuntimeError::Network`](crate::RuntimeError::Network)). A list with an invalid host is refused, too.
    ///
    /// ```
    /// use conjure::sandbox::NetworkPolicy;
    /// use conjure::{SessionSpec, TenantId};
    ///
    /// let hosts = NetworkPolicy::Limited(vec!["api.example.com".to_owned(), "*.example.org".to_owned()]);
    /// let spec = SessionSpec::new(TenantId::new("acme")?).network(hosts);
    /// # let _ = spec;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn network(mut self, policy: NetworkPolicy) -> Self {
        self.network = policy;
        self
    }

    /// Adds Python packages to the session's sandboxes. Packages that their Python lacks are installed by `pip`, once for
    /// each list of a tenant. A separate sandbox does this, which reaches only `pypi.org` and `files.pythonhosted.org`.
    /// The session's first sandbox waits for it. The packages are recorded.
    ///
    /// A sandbox of the embedder's own kind is refused, as is a configuration whose `network` does not permit both hosts
    /// ([`RuntimeError::PythonPackages`](crate::RuntimeError::PythonPackages)).
    #[must_use]
    pub fn python_packages(mut self, packages: impl IntoIterator<Item = PythonRequirement>) -> Self {
        self.python_packages.extend(packages);
        self
    }

    /// Adds the tools of these MCP servers, by their names in the configuration
    /// ([`Config::mcp_servers`](crate::Config::mcp_servers)). The names are recorded. Each server that is a program runs
    /// in a sandbox of its own, which ends with the session.
    #[must_use]
    pub fn mcp_servers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.mcp_servers.extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets MCP servers for this session alone, which need no configuration. Each replaces a configured server of the
    /// same name. Their programs run in sandboxes like those of configured servers.
    ///
    /// They may hold secrets, so nothing of them is recorded. After a restart, the caller must give them again to revive
    /// the session ([`SessionSecrets::mcp_servers`]).
    #[must_use]
    pub fn own_mcp_servers(mut self, servers: impl IntoIterator<Item = McpServerSpec>) -> Self {
        self.secrets = self.secrets.mcp_servers(servers);
        self
    }

    /// Adds the tools of a remote MCP server. It needs no configuration, and its address may come from an untrusted
    /// client. So private addresses are refused, unless the configuration permits them
    /// ([`ServeSettings::private_mcp_servers`](crate::ServeSettings::private_mcp_servers)). The first model call waits
    /// for its tools. It is recorded.
    #[must_use]
    pub fn remote_server(mut self, server: RemoteToolServer) -> Self {
        self.remote_servers.push(server);
        self
    }

    /// Uses the credentials in these vaults of the server (`conjure serve`) for the session's remote servers. For each
    /// server, the first vault with a credential for its address is used. The vaults are read at each connection. Only
    /// their ids are recorded.
    #[must_use]
    pub fn vaults(mut self, ids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.vaults.extend(ids.into_iter().map(Into::into));
        self
    }

    /// Adds a tool whose results the application provides. A call of it waits for its result, also over a restart
    /// ([`Session::provide_result`](conjure_actors::session::Session::provide_result)). No task runs meanwhile. The name
    /// must differ from those of all other tools. The definition is recorded.
    #[must_use]
    pub fn client_tool(mut self, definition: ToolDefinition) -> Self {
        self.client_tools.push(definition);
        self
    }

    /// Names the session for people. The title is recorded.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the limits of each turn, instead of the configuration's limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Limits what all model calls of the session may cost together, in millionths of a dollar.
    ///
    /// A turn that reaches the limit ends with [`Limit::Cost`](conjure_conversation::Limit::Cost), as do later turns. The
    /// last call may exceed the limit. The model must have known prices.
    #[must_use]
    pub const fn max_cost_micros(mut self, micros: u64) -> Self {
        self.max_cost_micros = Some(micros);
        self
    }

    /// Works in this directory of the embedder, which is not removed with the session. Only its path is recorded.
    #[must_use]
    pub fn workspace(mut self, directory: impl Into<PathBuf>) -> Self {
        self.workspace = Some(directory.into());
        self
    }

    /// Adds a variable for the session's commands. It is recorded, so a revived session has it.
    ///
    /// If its name looks like that of a secret ([`is_sensitive_variable`](conjure_base::is_sensitive_variable)), it is
    /// not recorded. Its value is then redacted wherever it would leave. After a restart, the caller must give it again
    /// to revive the session ([`Runtime::session_with`](crate::Runtime::session_with)).
    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.secrets = self.secrets.environment(name, value);
        self
    }

    /// Adds a secret, which commands do not see. It is redacted wherever it would leave, and never recorded. After a
    /// restart, the caller must give it again to revive the session.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.secrets = self.secrets.secret(name, value);
        self
    }

    /// Adds the value of an input that the manifest of one of its skills declares. The model sees it, and commands have
    /// it as the variable `CONJURE_INPUT_<NAME>`. It is recorded.
    ///
    /// If a manifest declares the input sensitive, only its name is recorded and shown to the model. The value is
    /// redacted wherever it would leave. After a restart, the caller must give it again to revive the session.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.secrets = self.secrets.input(name, value);
        self
    }

    /// Adds the values of several inputs.
    #[must_use]
    pub fn inputs<N: Into<String>, V: Into<Value>>(self, inputs: impl IntoIterator<Item = (N, V)>) -> Self {
        inputs.into_iter().fold(self, |spec, (name, value)| spec.input(name, value))
    }

    /// Registers a file, a URL or data as an artifact of this name
    /// ([`Session::artifacts`](conjure_actors::session::Session::artifacts)). It is ingested when the session is opened.
    /// A URL is fetched at its first use. If the registration fails, the session is not opened.
    #[must_use]
    pub fn artifact(mut self, name: impl Into<String>, source: RegistrationSource) -> Self {
        self.artifacts.push((name.into(), source));
        self
    }

    /// Adds a metadata entry of the embedder. It is recorded and returned with the session.
    #[must_use]
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// Starts the session with a history from another conversation.
    #[must_use]
    pub fn history(mut self, messages: Vec<Message>) -> Self {
        self.history = messages;
        self
    }
}

/// Leaves out texts, because they belong to the user.
impl std::fmt::Debug for SessionSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionSpec")
            .field("tenant", &self.tenant)
            .field("skills", &self.skills)
            .field("catalog", &self.catalog)
            .field("model", &self.model)
            .field("executor", &self.executor)
            .field("workspace", &self.workspace)
            .field("given", &self.secrets)
            .finish_non_exhaustive()
    }
}
