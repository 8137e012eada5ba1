//! The parts of a session, made from what is recorded of it: its model, its skills, its tools over a supervised sandbox.
//!
//! State: what sessions were given and their records do not hold; parts that were made right before a start, so that what is
//! wrong with them is known by its type; workspaces that go with this process. All in memory.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use conjure_actors::artifacts::ArtifactParts;
use conjure_actors::executors::ExecutorSource;
use conjure_actors::pool::PoolStats;
use conjure_actors::session::{Fitting, Outfit, SessionParts};
use conjure_actors::supervision::Failure;
use conjure_actors::tenants::Tenancy;
use conjure_artifact::{FileRemoval, OutputStore, Uploads, WorkspaceOutputs};
use conjure_base::{Redactor, TenantId};
use conjure_conversation::{Activation, Model, Profile, ToolDefinition};
use conjure_journal::SessionKey;
use conjure_prompt::{
    ArtifactPrompt, ContainerFiles, PromptOptions, SessionSkill, SessionSkills, SkillComposer, SkillTool,
    ToolOptions, tool_definitions,
};
use conjure_sandbox::{Executor, PrivateWorkspace};
use conjure_skill::{Inputs, Skill};
use conjure_toolbox::{
    Approver, ArtifactTools, Caller, SkillTools, Tool, Toolbox, ToolboxBuilder, ToolboxError,
};
use futures_util::future::BoxFuture;

use super::artifacts::ArtifactDesk;
use super::error::RuntimeError;
use super::given::{Complete, Given};
use super::home::{Home, TenantHome};
use super::hosted::{self, FilesOfSession};
use super::hosts::Presence;
use super::inputs::{check_given, effective, hidden_variables};
use super::kept::remove_kept;
use super::models::Models;
use super::options::Record;
use super::sandboxes::{Kind, Sandboxes};
use super::tenants::{DiskUsage, Freshness, Gone, Policies};
use crate::config::{Config, ExecutorKind};
use crate::context::{ContextOptions, create_context, redactor_with};
use crate::workbench::{prompt_options, skill_tools};
use crate::workspace::Workspace;

/// Makes the parts of sessions. Clones are the same.
#[derive(Clone)]
pub(crate) struct Outfitter {
    inner: Arc<Inner>,
    /// This process counts as living for as long as the tree has this, which it has until it has stopped.
    _presence: Option<Arc<Presence>>,
}

struct Inner {
    config: Config,
    home: Arc<Home>,
    record: Record,
    models: Models,
    tools: Vec<Arc<dyn Tool>>,
    approver: Arc<dyn Approver>,
    sandboxes: Sandboxes,
    /// What artifacts are worked with, where sessions have some.
    desk: Option<ArtifactDesk>,
    gone: Gone,
    sessions: Mutex<HashMap<SessionKey, Known>>,
    /// What the models of all sessions are told of their tools.
    told: OnceLock<Arc<[ToolDefinition]>>,
}

/// What is known of a session beside its record.
#[derive(Default)]
struct Known {
    given: Given,
    /// Made for the start that is about to happen.
    parts: Option<Parts>,
    /// A workspace that goes with this process.
    workspace: Option<Arc<PrivateWorkspace>>,
}

/// What a session is made of, before its sandbox is supervised.
pub(crate) struct Parts {
    model: Arc<dyn Model>,
    skills: Vec<Arc<SessionSkill>>,
    /// None: it has no sandbox.
    source: Option<Arc<dyn ExecutorSource>>,
    redactor: Redactor,
    /// What the model is told of the inputs.
    inputs: String,
    /// What they are.
    values: Inputs,
    /// The folder of the host's where its files lie.
    workspace: Option<PathBuf>,
    artifacts: Option<ArtifactParts>,
    /// Where its files lie with the service that runs its skills.
    hosted: Option<FilesOfSession>,
}

impl Outfitter {
    pub(crate) fn new(
        config: Config,
        home: Arc<Home>,
        models: Models,
        tools: Vec<Arc<dyn Tool>>,
        approver: Arc<dyn Approver>,
        sandboxes: Sandboxes,
        desk: Option<ArtifactDesk>,
    ) -> Self {
        let (record, gone) = (home.record(), Gone::of(home.path()));
        let (sessions, told) = (Mutex::default(), OnceLock::new());
        let inner =
            Inner { config, home, record, models, tools, approver, sandboxes, desk, gone, sessions, told };
        Self { inner: Arc::new(inner), _presence: None }
    }

    /// The same, for the tree.
    pub(crate) fn holding(&self, presence: Option<Arc<Presence>>) -> Self {
        Self { inner: Arc::clone(&self.inner), _presence: presence }
    }

    /// Looks whether a model can be told of the host's tools beside the built-in ones.
    pub(crate) fn check_tools(&self) -> Result<(), RuntimeError> {
        let tools = self.inner.tools.iter().map(Arc::clone);
        tools.fold(Toolbox::builder(), ToolboxBuilder::shared_tool).build()?;
        let builtin = tool_definitions(&ToolOptions::default());
        let taken = self.inner.tools.iter().map(|tool| tool.definition().name);
        let is_ours = |name: &String| {
            SkillTool::from_name(name).is_some() || builtin.iter().any(|builtin| builtin.name == *name)
        };
        let taken = taken.into_iter().find(is_ours);
        taken.map_or(Ok(()), |name| Err(ToolboxError::DuplicateName { name }.into()))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.inner.config
    }

    /// How the pools are that have spares.
    pub(crate) fn pools(&self) -> Vec<PoolStats> {
        self.inner.sandboxes.pools().stats()
    }

    /// What tenants may have.
    pub(crate) fn policies(&self) -> &Policies {
        self.inner.sandboxes.policies()
    }

    /// How many bytes are kept for a tenant of what URLs led to.
    pub(crate) fn artifact_cache_bytes(&self, tenant: &TenantId) -> u64 {
        self.inner.desk.as_ref().map_or(0, |desk| desk.cached(tenant))
    }

    /// Which tenants are being deleted.
    pub(crate) fn gone(&self) -> &Gone {
        &self.inner.gone
    }

    pub(crate) fn home(&self) -> &Arc<Home> {
        &self.inner.home
    }

    /// Refuses a session of this tenant where it is being deleted.
    pub(crate) async fn check_tenant(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        let (inner, tenant) = (Arc::clone(&self.inner), tenant.clone());
        blocking("looking whether a tenant is deleted", move || inner.gone.check(&tenant)).await
    }

    /// The same where its folder is as full as it may be.
    pub(crate) async fn check_disk(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        self.inner.sandboxes.meters().check(tenant).await
    }

    /// What tenants have recorded counts from now on, with large bodies in this folder.
    pub(crate) fn count_recorded(&self, tenancy: Tenancy, bodies: PathBuf) {
        self.inner.sandboxes.meters().count_recorded(tenancy, bodies);
    }

    /// What a tenant takes of the disk.
    pub(crate) async fn measure(
        &self,
        tenant: &TenantId,
        freshness: Freshness,
    ) -> Result<DiskUsage, RuntimeError> {
        self.inner.sandboxes.meters().measure(tenant, freshness).await
    }

    /// What deletes files of sessions of this tenant whose model has this name, or none.
    ///
    /// # Errors
    /// Why there is nothing, in words.
    pub(crate) fn removal(
        &self,
        tenant: &TenantId,
        model: Option<&str>,
    ) -> Result<Arc<dyn FileRemoval>, String> {
        let (name, model) = self.bare_model(tenant, model).map_err(|error| error.to_string())?;
        hosted::removal_of(&name, &*model)
    }

    /// Whether sessions of this profile may have files at their model's service: where they ask for skills of it, where the model's client
    /// runs some by itself, and where it is not known whether it does.
    pub(crate) fn may_have_files(&self, tenant: &TenantId, profile: &Profile) -> bool {
        let acts = || match self.bare_model(tenant, profile.model.as_deref()) {
            Ok((_, model)) => hosted::acts(&*model),
            Err(_) => true,
        };
        !profile.hosted.is_empty() || acts()
    }

    fn bare_model(
        &self,
        tenant: &TenantId,
        model: Option<&str>,
    ) -> Result<(String, Arc<dyn Model>), RuntimeError> {
        let policy = self.inner.sandboxes.policies().of(tenant);
        let name = self.inner.models.name(&policy.models, model)?;
        Ok((name.to_owned(), self.inner.models.named(&policy.models, name, &self.inner.config)?))
    }

    /// The name of the model of a session of this tenant that names this one, or none.
    pub(crate) fn model_name(&self, tenant: &TenantId, wanted: Option<&str>) -> Result<String, RuntimeError> {
        let policy = self.inner.sandboxes.policies().of(tenant);
        self.inner.models.name(&policy.models, wanted).map(str::to_owned)
    }

    /// Forgets what this process knows of a deleted tenant's sessions. Their workspaces go with it, where they go with this
    /// process.
    pub(crate) async fn forget_tenant(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        let inner = Arc::clone(&self.inner);
        let tenant = tenant.clone();
        blocking("forgetting a tenant", move || {
            let mut sessions = inner.sessions();
            let (gone, kept) =
                std::mem::take(&mut *sessions).into_iter().partition(|(key, _)| key.tenant == tenant);
            *sessions = kept;
            drop(sessions);
            let gone: HashMap<SessionKey, Known> = gone;
            drop(gone);
            inner.sandboxes.meters().forget(&tenant);
            if let Some(desk) = &inner.desk {
                desk.forget(&tenant);
            }
            Ok(())
        })
        .await
    }

    /// The sandboxes of sessions that name none.
    pub(crate) fn default_sandbox(&self) -> &'static str {
        self.inner.config.executor().as_str()
    }

    /// A tenant's data folder.
    pub(crate) async fn tenant(&self, key: &SessionKey) -> Result<Arc<TenantHome>, RuntimeError> {
        self.home_of(&key.tenant).await
    }

    /// The same.
    pub(crate) async fn home_of(&self, tenant: &TenantId) -> Result<Arc<TenantHome>, RuntimeError> {
        let (home, tenant) = (Arc::clone(&self.inner.home), tenant.clone());
        blocking("the opening of a data folder", move || home.tenant(&tenant)).await
    }

    /// The data folder of a session's tenant, where there is one: asking makes none.
    pub(crate) async fn existing(&self, key: &SessionKey) -> Result<Option<Arc<TenantHome>>, RuntimeError> {
        let (home, tenant) = (Arc::clone(&self.inner.home), key.tenant.clone());
        blocking("the opening of a data folder", move || home.existing(&tenant)).await
    }

    /// Remembers what a session is given, over what it was given before, which is returned.
    pub(crate) fn give(&self, key: &SessionKey, given: Given) -> Given {
        let mut sessions = self.inner.sessions();
        let known = sessions.entry(key.clone()).or_default();
        let given = given.over(&known.given);
        std::mem::replace(&mut known.given, given)
    }

    /// What was given cannot be used: what was given before stands again.
    pub(crate) fn take_back(&self, key: &SessionKey, before: Given) {
        self.inner.sessions().entry(key.clone()).or_default().given = before;
    }

    /// What of a session must not leave, as far as it is known here.
    pub(crate) fn redactor(&self, key: &SessionKey) -> Redactor {
        let known = self.inner.sessions().get(key).map(|known| known.given.clone()).unwrap_or_default();
        let Complete { environment, secrets } = known.all();
        let options = ContextOptions { environment, secrets, ..ContextOptions::default() };
        let redactor = redactor_with(&options, &self.inner.models.secrets());
        redactor.learn(&self.inner.sandboxes.policies().of(&key.tenant).redactor());
        redactor
    }

    /// The folder that a session works in, where it is there.
    pub(crate) async fn workspace(
        &self,
        key: &SessionKey,
        profile: &Profile,
    ) -> Result<Option<PathBuf>, RuntimeError> {
        if let Some(folder) = &profile.workspace {
            return Ok(Some(folder.clone()));
        }
        if let Some(known) = self.inner.sessions().get(key).and_then(|known| known.workspace.clone()) {
            return Ok(Some(known.path().to_owned()));
        }
        let (inner, key) = (Arc::clone(&self.inner), key.clone());
        blocking("looking for a workspace", move || match inner.record {
            Record::InMemory => Ok(None),
            Record::OnDisk => inner.own_workspace(&key, &*inner.home.tenant(&key.tenant)?).map(Some),
        })
        .await
    }

    /// Lets the workspace stay that would go with this process.
    pub(crate) async fn keep_workspace(&self, key: &SessionKey) -> Result<Option<PathBuf>, RuntimeError> {
        let known = self.inner.sessions().get_mut(key).and_then(|known| known.workspace.take());
        let Some(workspace) = known.and_then(Arc::into_inner) else { return Ok(None) };
        let home = Arc::clone(&self.inner.home);
        let keeping = move || {
            let kept = workspace.keep().map_err(|error| RuntimeError::Sandbox(error.into()))?;
            home.keep();
            Ok(Some(kept))
        };
        blocking("keeping a workspace", keeping).await
    }

    /// Makes the parts of a session that is about to be started, and keeps them for that.
    pub(crate) async fn prepare(&self, key: &SessionKey, profile: &Profile) -> Result<(), RuntimeError> {
        let parts = self.make(key, profile).await?;
        self.inner.sessions().entry(key.clone()).or_default().parts = Some(parts);
        Ok(())
    }

    /// It was started, or not: what was prepared is of no use any more, and what says nothing need not be known.
    pub(crate) fn settle(&self, key: &SessionKey) {
        let mut sessions = self.inner.sessions();
        if let Some(known) = sessions.get_mut(key) {
            known.parts = None;
            if known.given.is_empty() && known.workspace.is_none() {
                sessions.remove(key);
            }
        }
    }

    /// Removes what a session that is deleted had: its secrets here, its own workspace on the disk, where there is one.
    pub(crate) async fn forget(&self, key: &SessionKey, home: &Arc<TenantHome>) -> Result<(), RuntimeError> {
        let known = self.inner.sessions().remove(key);
        let (record, home, session) = (self.inner.record, Arc::clone(home), key.session);
        blocking("the removal of a workspace", move || {
            // With the workspace, where it goes with this process.
            drop(known);
            if record == Record::InMemory {
                return Ok(());
            }
            remove_kept(&home, session)?;
            let removed = home.data.remove_workspace(&session.to_string());
            removed.map(drop).map_err(|error| RuntimeError::Sandbox(error.into()))
        })
        .await
    }

    async fn make(&self, key: &SessionKey, profile: &Profile) -> Result<Parts, RuntimeError> {
        let (inner, key, profile) = (Arc::clone(&self.inner), key.clone(), profile.clone());
        blocking("the preparation of a session", move || inner.make(&key, &profile)).await
    }

    fn toolbox(
        &self,
        key: &SessionKey,
        executor: Option<Arc<dyn Executor>>,
        (skills, references): (Option<SkillTools>, Option<ArtifactTools>),
        redactor: Redactor,
    ) -> Result<Toolbox, ToolboxError> {
        let inner = &self.inner;
        let builder = match executor {
            Some(executor) => Toolbox::builder().executor(executor),
            None => Toolbox::builder(),
        };
        let builder = builder
            .caller(Caller { tenant: key.tenant.clone(), session: key.session })
            .timeout(inner.config.tool_timeout())
            .redactor(redactor)
            .approver(Arc::clone(&inner.approver))
            .sharing(inner.told.get().cloned().unwrap_or_default());
        let builder = match skills {
            Some(skills) => builder.skills(skills),
            None => builder,
        };
        let builder = match references {
            Some(references) => builder.artifacts(references),
            None => builder,
        };
        let builder = inner.tools.iter().fold(builder, |builder, tool| builder.shared_tool(Arc::clone(tool)));
        let toolbox = builder.build()?;
        // Whoever comes first; they are the same for all.
        inner.told.get_or_init(|| toolbox.definitions());
        Ok(toolbox)
    }
}

impl Inner {
    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionKey, Known>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks.
    fn make(&self, key: &SessionKey, profile: &Profile) -> Result<Parts, RuntimeError> {
        // Also who has a handle starts no session of a tenant that goes.
        self.gone.check(&key.tenant)?;
        let policy = self.sandboxes.policies().of(&key.tenant);
        let model = self.models.name(&policy.models, profile.model.as_deref())?;
        let gate = self.sandboxes.policies().model_calls();
        let name = model;
        let model = self.models.find(&policy.models, name, &key.tenant, gate, &self.config)?;
        hosted::check(&profile.hosted, name, &*model)?;
        let hosted = hosted::files_of(&profile.hosted, name, &*model)?;
        let mut given = self.sessions().get(key).map(|known| known.given.clone()).unwrap_or_default();
        let mut complete = given.complete(key.session, profile)?;
        policy.complete(&mut complete);
        let kind =
            self.sandboxes.kind(profile.executor.as_deref().unwrap_or(self.config.executor().as_str()))?;
        let home = self.home.tenant(&key.tenant)?;
        if let Some(Kind::Built(ExecutorKind::Docker)) = kind {
            self.home.note_containers()?;
        }
        let skills =
            profile.skills.iter().map(|pinned| home.pins.find(pinned)).collect::<Result<Vec<_>, _>>()?;
        if profile.activation == Activation::Load {
            // Listed here, where it may take its time: whether there are scripts is told with the tools.
            for skill in &skills {
                skill.files();
            }
        }
        let folders: Vec<Arc<Skill>> = skills.iter().map(|skill| Arc::clone(skill.skill())).collect();
        given.read_texts(&folders);
        check_given(&folders, profile, &given)?;
        let workspace = match (&profile.workspace, &kind) {
            (Some(folder), kind) => Some(self.check(folder, kind.as_ref())?),
            (None, Some(_)) => Some(self.own_workspace(key, &home)?),
            (None, None) => None,
        };
        let inputs = effective(&folders, profile, given.inputs(), &complete.environment);
        // Also where whoever deploys the host gave them, by a tenant's policy.
        complete.hide(&hidden_variables(&folders));
        if let Some(known) = self.sessions().get_mut(key) {
            known.given.read_texts(&folders);
            known.given.hide(&profile.withheld.environment);
        }
        complete.environment.extend(inputs.environment);
        complete.secrets.extend(inputs.secrets);
        let options = ContextOptions {
            workspace: workspace.clone(),
            data: Some(home.data.clone()),
            environment: complete.environment,
            secrets: complete.secrets,
            ..ContextOptions::default()
        };
        let redactor = redactor_with(&options, &self.models.secrets());
        redactor.learn(&policy.redactor());
        let source = match kind {
            Some(kind) => {
                let context =
                    create_context(&folders, &self.config, options).map_err(RuntimeError::Sandbox)?;
                // It is looked at by its path there.
                if let Some(folder) =
                    workspace.as_ref().filter(|folder| *folder != context.workspace().path())
                {
                    let reason = "a symbolic link was put into its path just now".to_owned();
                    return Err(RuntimeError::Workspace { path: folder.clone(), reason });
                }
                Some(self.sandboxes.source(key, &home, &kind, &self.config, context)?)
            }
            None => None,
        };
        let artifacts = self.desk.as_ref().map(|desk| desk.parts(key, &home, self.record, folders));
        let (inputs, values) = (inputs.shown, inputs.values);
        Ok(Parts { model, skills, source, redactor, inputs, values, workspace, artifacts, hosted })
    }

    /// The folder that a session has of its own.
    fn own_workspace(&self, key: &SessionKey, home: &TenantHome) -> Result<PathBuf, RuntimeError> {
        let refused = |error: conjure_sandbox::SandboxError| RuntimeError::Sandbox(error.into());
        if self.record == Record::OnDisk {
            return home.data.named_workspace(&key.session.to_string()).map_err(refused);
        }
        if let Some(known) = self.sessions().get(key).and_then(|known| known.workspace.clone()) {
            return Ok(known.path().to_owned());
        }
        let made = Arc::new(home.data.workspace().map_err(refused)?);
        let path = made.path().to_owned();
        self.sessions().entry(key.clone()).or_default().workspace = Some(made);
        Ok(path)
    }

    /// A folder of the host's must be there, at the path without links that was recorded, and keep apart from ours, where other sessions' files are.
    fn check(&self, folder: &std::path::Path, kind: Option<&Kind<'_>>) -> Result<PathBuf, RuntimeError> {
        let refused = |reason: String| RuntimeError::Workspace { path: folder.to_owned(), reason };
        let real = Workspace::at_real_path(folder).map_err(|error| refused(error.to_string()))?;
        let real = real.path().to_owned();
        let data = self.home.path();
        let isolates = !matches!(kind, Some(Kind::Built(ExecutorKind::Local)));
        if isolates && (real.starts_with(data) || data.starts_with(&real)) {
            let how = if real.starts_with(data) { "lies in" } else { "contains" };
            return Err(refused(format!(
                "it {how} the data folder `{}`, where the files of all sessions are",
                data.display()
            )));
        }
        Ok(real)
    }
}

impl Outfit for Outfitter {
    fn outfit<'a>(&'a self, fitting: Fitting<'a>) -> BoxFuture<'a, Result<SessionParts, Failure>> {
        Box::pin(async move {
            let prepared = self.inner.sessions().get_mut(fitting.key).and_then(|known| known.parts.take());
            let Parts { model, skills, source, redactor, inputs, values, workspace, artifacts, hosted } =
                match prepared {
                    Some(parts) => parts,
                    None => {
                        self.make(fitting.key, fitting.profile).await.map_err(|error| explained(&error))?
                    }
                };
            let references =
                artifacts.as_ref().map(|artifacts| ArtifactTools::new(artifacts.resolver.clone()));
            let layout = source.as_ref().map(|source| source.layout().clone());
            let prompting = PromptOptions {
                activation: fitting.profile.activation,
                delivery: fitting.profile.delivery,
                artifacts: references.as_ref().map(|references| ArtifactPrompt {
                    container: if hosted.is_some() { ContainerFiles::Uploaded } else { ContainerFiles::None },
                    ..references.prompt(layout.as_ref())
                }),
                ..source.as_ref().map(|source| prompt_options(source.layout().clone())).unwrap_or_default()
            };
            let executor: Option<Arc<dyn Executor>> = match source {
                Some(source) => Some(Arc::new(fitting.executors.supervise(source)?)),
                None => None,
            };
            let mut base_prompt = fitting.profile.base_prompt.clone();
            if !inputs.is_empty() {
                base_prompt.push_str("\n\n");
                base_prompt.push_str(&inputs);
            }
            let skills = SessionSkills::new(skills, prompting.locations.clone());
            let tools =
                skill_tools(&skills, &prompting, &self.inner.config).map(|tools| tools.inputs(values));
            let toolbox =
                self.toolbox(fitting.key, executor.clone(), (tools, references), redactor.clone())?;
            let composer =
                SkillComposer::of_session(&base_prompt, &skills, toolbox.definitions(), &prompting);
            let outputs = workspace
                .filter(|_| executor.is_some())
                .map(|folder| Arc::new(WorkspaceOutputs::new(folder)) as Arc<dyn OutputStore>);
            let of_service = hosted.as_ref().and_then(|hosted| hosted.outputs.clone());
            let outputs = outputs.into_iter().chain(of_service).collect();
            let uploads = hosted
                .zip(artifacts.as_ref())
                .map(|(hosted, artifacts)| Uploads::new(artifacts.resolver.store().clone(), hosted.uploads));
            Ok(SessionParts {
                model,
                composer: Arc::new(composer),
                tools: Arc::new(toolbox),
                redactor,
                executor,
                outputs,
                artifacts,
                uploads,
            })
        })
    }
}

/// What the next message is told, with how to mend it.
fn explained(error: &RuntimeError) -> Failure {
    match error.hint() {
        Some(hint) => format!("{error} ({hint})").into(),
        None => error.to_string().into(),
    }
}

/// Does what blocks where that is allowed.
pub(crate) async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Result<T, RuntimeError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(RuntimeError::broke_off(what, &error)))
}
