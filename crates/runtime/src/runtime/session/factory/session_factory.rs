//! Builds the parts of sessions from their profiles: the model, the skills, the tools, and the supervised sandbox.
//!
//! State, in memory:
//!
//! - The secrets and inputs of sessions. They are never recorded.
//! - Parts that were prepared just before a start, so that errors in them keep their type.
//! - Workspaces that end with this process.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use conjure_actors::session::{ModelSetup, SessionComponents, SessionFactory, SessionSetup};
use conjure_actors::supervision::Failure;
#[cfg(feature = "mcp")]
use conjure_actors::tenants::TenantAccounts;
use conjure_artifact::{ArtifactUploader, OutputStore, WorkspaceOutputs};
use conjure_base::{Redactor, lock};
#[cfg(feature = "mcp")]
use conjure_conversation::PreCallHook;
use conjure_conversation::{Composer, FileSource, SessionProfile, ToolDefinition};
use conjure_journal::SessionKey;
use conjure_prompt::{
    ArtifactPrompt, ContainerFiles, PromptOptions, SessionSkills, SkillComposer, SkillTool, ToolOptions,
    tool_definitions,
};
use conjure_sandbox::Executor;
use conjure_toolbox::{
    Approver, ArtifactTools, CallerIdentity, CurrentToolsComposer, SkillTools, Tool, ToolSource, Toolbox,
    ToolboxBuilder, ToolboxError,
};
use futures_util::future::BoxFuture;

use crate::config::Config;
use crate::runtime::data::data_layout::RuntimeDir;
use crate::runtime::data::process_lock::ProcessLock;
#[cfg(feature = "mcp")]
use crate::runtime::data::vaults::Vaults;
use crate::runtime::error::RuntimeError;
use crate::runtime::model_registry::ModelRegistry;
use crate::runtime::options::JournalLocation;
use crate::runtime::sandbox_kinds::SandboxKinds;
use crate::runtime::session::factory::artifact_services::RuntimeArtifacts;
use crate::runtime::session::factory::hosted_sessions::HostedSessionFiles;
#[cfg(feature = "mcp")]
use crate::runtime::session::mcp;
use crate::runtime::session::python::python_packages::PythonInstaller;
use crate::runtime::session::readers::known_session::{PreparedParts, VolatileSessionState};
use crate::runtime::task_set::run_blocking;
use crate::runtime::tenants::TenantDeletions;
use crate::workbench::{prompt_options, skill_tools};

/// Builds the parts of sessions. Clones share it.
#[derive(Clone)]
pub(crate) struct RuntimeSessionFactory {
    pub(crate) inner: Arc<Inner>,
    /// Holds the process lock until the actors have stopped, so that other processes count this one as alive.
    _presence: Option<Arc<ProcessLock>>,
}

pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) home: Arc<RuntimeDir>,
    pub(crate) record: JournalLocation,
    pub(crate) models: ModelRegistry,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) approver: Arc<dyn Approver>,
    pub(crate) sandboxes: SandboxKinds,
    /// The artifact services, if sessions have artifacts.
    pub(crate) artifacts: Option<RuntimeArtifacts>,
    pub(crate) deletions: TenantDeletions,
    /// Set once the journal is open.
    #[cfg(feature = "mcp")]
    pub(crate) vaults: OnceLock<Vaults>,
    /// Set before the actors start.
    #[cfg(feature = "mcp")]
    pub(crate) tenant_servers: OnceLock<mcp::TenantServers>,
    /// Set once the journal is open.
    #[cfg(feature = "mcp")]
    pub(crate) accounts: OnceLock<TenantAccounts>,
    pub(crate) python: Arc<PythonInstaller>,
    pub(crate) sessions: Mutex<HashMap<SessionKey, VolatileSessionState>>,
    /// The tool definitions of all sessions without tools of their own.
    pub(crate) tool_definitions: OnceLock<Arc<[ToolDefinition]>>,
}

impl RuntimeSessionFactory {
    pub(crate) fn new(
        config: Config,
        home: Arc<RuntimeDir>,
        models: ModelRegistry,
        tools: Vec<Arc<dyn Tool>>,
        approver: Arc<dyn Approver>,
        sandboxes: SandboxKinds,
        artifacts: Option<RuntimeArtifacts>,
    ) -> Self {
        let (record, deletions) = (home.record(), TenantDeletions::new(home.path()));
        let (sessions, tool_definitions) = (Mutex::default(), OnceLock::new());
        let inner = Inner {
            config,
            home,
            record,
            models,
            tools,
            approver,
            sandboxes,
            artifacts,
            deletions,
            #[cfg(feature = "mcp")]
            vaults: OnceLock::new(),
            #[cfg(feature = "mcp")]
            tenant_servers: OnceLock::new(),
            #[cfg(feature = "mcp")]
            accounts: OnceLock::new(),
            python: Arc::default(),
            sessions,
            tool_definitions,
        };
        Self { inner: Arc::new(inner), _presence: None }
    }

    /// A clone for the actors. It holds the process lock, so that other processes count this one as alive.
    pub(crate) fn with_presence(&self, process_lock: Option<Arc<ProcessLock>>) -> Self {
        Self { inner: Arc::clone(&self.inner), _presence: process_lock }
    }

    /// Checks that the embedder's tools can be offered to a model together with the built-in ones.
    pub(crate) fn check_tools(&self) -> Result<(), RuntimeError> {
        let tools = self.inner.tools.iter().map(Arc::clone);
        tools.fold(Toolbox::builder(), ToolboxBuilder::with_shared_tool).build()?;
        let builtin = tool_definitions(&ToolOptions::default());
        let taken = self.inner.tools.iter().map(|tool| tool.definition().name);
        let is_ours = |name: &String| {
            SkillTool::from_name(name).is_some() || builtin.iter().any(|builtin| builtin.name == *name)
        };
        let taken = taken.into_iter().find(is_ours);
        taken.map_or(Ok(()), |name| Err(ToolboxError::DuplicateName { name }.into()))
    }

    fn toolbox(
        &self,
        key: &SessionKey,
        executor: Option<Arc<dyn Executor>>,
        (skills, references, source): (
            Option<SkillTools>,
            Option<ArtifactTools>,
            Option<Arc<dyn ToolSource>>,
        ),
        profile: &SessionProfile,
        redactor: Redactor,
    ) -> Result<Toolbox, ToolboxError> {
        let inner = &self.inner;
        let builder = Toolbox::builder()
            .with_caller(CallerIdentity { tenant: key.tenant.clone(), session: key.session })
            .with_timeout(inner.config.tool_timeout())
            .with_redactor(redactor)
            .with_approver(Arc::clone(&inner.approver))
            .with_shared_definitions(inner.tool_definitions.get().cloned().unwrap_or_default());
        // Each of these is there at most once.
        let builder = executor.into_iter().fold(builder, ToolboxBuilder::with_executor);
        let builder = profile.toolset.iter().cloned().fold(builder, ToolboxBuilder::with_toolset);
        let builder = skills.into_iter().fold(builder, ToolboxBuilder::with_skills);
        let builder = references.into_iter().fold(builder, ToolboxBuilder::with_artifacts);
        let builder = source.into_iter().fold(builder, ToolboxBuilder::with_tool_source);
        let builder =
            inner.tools.iter().fold(builder, |builder, tool| builder.with_shared_tool(Arc::clone(tool)));
        let toolbox = builder.with_client_tools(profile.client_tools.iter().cloned()).build()?;
        // Sessions without tools of their own all have the same definitions. The first such session stores them.
        if profile.client_tools.is_empty() && profile.toolset.is_none() {
            inner.tool_definitions.get_or_init(|| toolbox.definitions());
        }
        Ok(toolbox)
    }
}

impl Deref for RuntimeSessionFactory {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl Inner {
    pub(crate) fn sessions(&self) -> MutexGuard<'_, HashMap<SessionKey, VolatileSessionState>> {
        lock(&self.sessions)
    }
}

impl SessionFactory for RuntimeSessionFactory {
    fn build<'a>(&'a self, setup: SessionSetup<'a>) -> BoxFuture<'a, Result<SessionComponents, Failure>> {
        Box::pin(async move {
            let prepared = self.inner.sessions().get_mut(setup.key).and_then(|known| known.parts.take());
            // Another process may have changed the model since the parts were prepared. Such parts are not used.
            let prepared = prepared.filter(|parts| parts.model_name == setup.profile.model);
            let PreparedParts {
                model_name: _,
                model,
                skills,
                source,
                redactor,
                inputs,
                values,
                workspace,
                artifacts,
                #[cfg(feature = "mcp")]
                servers,
                hosted,
            } = match prepared {
                Some(parts) => parts,
                None => self
                    .build_parts(setup.key, setup.profile)
                    .await
                    .map_err(|error| config_failure(&error))?,
            };
            let references =
                artifacts.as_ref().map(|artifacts| ArtifactTools::new(artifacts.resolver.clone()));
            let layout = source.as_ref().map(|source| source.layout().clone());
            let prompting = PromptOptions {
                activation: setup.profile.activation,
                delivery: setup.profile.delivery,
                artifacts: references.as_ref().map(|references| ArtifactPrompt {
                    container_files: if hosted.is_some() {
                        ContainerFiles::Uploaded
                    } else {
                        ContainerFiles::None
                    },
                    ..references.prompt(layout.as_ref())
                }),
                ..source.as_ref().map(|source| prompt_options(source.layout().clone())).unwrap_or_default()
            };
            #[cfg(feature = "mcp")]
            let executors = setup.executors.clone();
            let executor: Option<Arc<dyn Executor>> = match source {
                Some(source) => Some(Arc::new(setup.executors.supervise(source)?)),
                None => None,
            };
            let mut base_prompt = setup.profile.base_prompt.clone();
            if !inputs.is_empty() {
                base_prompt.push_str("\n\n");
                base_prompt.push_str(&inputs);
            }
            let skills = SessionSkills::new(skills, prompting.locations.clone());
            let tools =
                skill_tools(&skills, &prompting, &self.inner.config).map(|tools| tools.with_inputs(values));
            let (source, pre_call_hook) = (None, None);
            #[cfg(feature = "mcp")]
            let (source, pre_call_hook) = match servers {
                servers if servers.is_empty() => (source, pre_call_hook),
                servers => {
                    let shared = (&setup.key.tenant, self.inner.tenant_servers.get());
                    let sampler = self.sampler(setup.key, setup.profile);
                    let servers = mcp::start_servers(
                        servers,
                        shared,
                        &executors,
                        executor.clone(),
                        &redactor,
                        &sampler,
                    )
                    .await?;
                    let hook = mcp::ToolServersHook::new(Arc::clone(&servers));
                    (Some(servers as Arc<dyn ToolSource>), Some(Arc::new(hook) as Arc<dyn PreCallHook>))
                }
            };
            let changes = source.is_some();
            let toolbox = self.toolbox(
                setup.key,
                executor.clone(),
                (tools, references, source),
                setup.profile,
                redactor.clone(),
            )?;
            let toolbox = Arc::new(toolbox);
            let composer =
                SkillComposer::for_session(&base_prompt, &skills, toolbox.definitions(), &prompting);
            let composer: Arc<dyn Composer> = match changes {
                true => Arc::new(CurrentToolsComposer::new(composer, Arc::clone(&toolbox))),
                false => Arc::new(composer),
            };
            let outputs = workspace
                .filter(|_| executor.is_some())
                .map(|dir| Arc::new(WorkspaceOutputs::new(dir)) as Arc<dyn OutputStore>);
            let components = SessionComponents {
                model,
                summarizer: None,
                composer,
                tools: toolbox,
                redactor,
                executor,
                outputs: outputs.into_iter().collect(),
                artifacts,
                uploads: None,
                pre_call_hook,
            };
            Ok(with_hosted_files(components, hosted))
        })
    }

    fn with_model<'a>(&'a self, setup: ModelSetup<'a>) -> BoxFuture<'a, Result<SessionComponents, Failure>> {
        let (inner, tenant) = (Arc::clone(&self.inner), setup.key.tenant.clone());
        let (profile, components) = (setup.profile.clone(), setup.components.clone());
        Box::pin(async move {
            let find_model = move || inner.model_of(&tenant, &profile);
            let found = run_blocking("the preparation of a model", find_model).await;
            let (model, hosted) = found.map_err(|error| config_failure(&error))?;
            Ok(with_hosted_files(SessionComponents { model, ..components }, hosted))
        })
    }
}

/// The same parts with these files at the model's service, instead of the earlier ones.
fn with_hosted_files(
    mut components: SessionComponents,
    hosted: Option<HostedSessionFiles>,
) -> SessionComponents {
    components.outputs.retain(|outputs| outputs.source() != FileSource::Hosted);
    components.outputs.extend(hosted.as_ref().and_then(|hosted| hosted.outputs.clone()));
    components.uploads = hosted
        .zip(components.artifacts.as_ref())
        .map(|(hosted, artifacts)| ArtifactUploader::new(artifacts.resolver.store().clone(), hosted.uploads));
    components
}

/// The failure of a start, with the hint of the error.
fn config_failure(error: &RuntimeError) -> Failure {
    match error.hint() {
        Some(hint) => format!("{error} ({hint})").into(),
        None => error.to_string().into(),
    }
}
