//! The prepared parts of a session: everything but its supervised sandbox. They are built from the session's profile.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_base::TenantId;
use conjure_conversation::{Model, SessionProfile, SkillActivation};
use conjure_fs::DirHandle;
use conjure_journal::SessionKey;
use conjure_sandbox::{SandboxError, WorkspaceMount};
use conjure_skill::Skill;
use rustix::fs::Mode;

use crate::config::ExecutorKind;
use crate::context::{ContextOptions, create_context, redactor_with};
use crate::models::CallSettings;
use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::options::JournalLocation;
use crate::runtime::sandbox_kinds::SandboxKind;
use crate::runtime::session::factory::hosted_sessions::{self, HostedSessionFiles};
use crate::runtime::session::factory::network::limit_network;
use crate::runtime::session::factory::session_factory::{Inner, RuntimeSessionFactory};
use crate::runtime::session::input::inputs::{check_secrets, effective_inputs, sensitive_variables};
#[cfg(feature = "mcp")]
use crate::runtime::session::mcp;
use crate::runtime::session::readers::known_session::PreparedParts;
use crate::runtime::task_set::run_blocking;
use crate::workspace::SessionWorkspace;

impl RuntimeSessionFactory {
    /// Builds the parts of a session that is about to be started, and keeps them for the start.
    pub(crate) async fn prepare(
        &self,
        key: &SessionKey,
        profile: &SessionProfile,
    ) -> Result<(), RuntimeError> {
        let parts = self.build_parts(key, profile).await?;
        self.inner.sessions().entry(key.clone()).or_default().parts = Some(parts);
        Ok(())
    }

    /// Drops prepared parts that were not used. Forgets the session if it has neither secrets nor a workspace.
    pub(crate) fn drop_prepared(&self, key: &SessionKey) {
        let mut sessions = self.inner.sessions();
        if let Some(known) = sessions.get_mut(key) {
            known.parts = None;
            if known.secrets.is_empty() && known.workspace.is_none() {
                sessions.remove(key);
            }
        }
    }

    pub(crate) async fn build_parts(
        &self,
        key: &SessionKey,
        profile: &SessionProfile,
    ) -> Result<PreparedParts, RuntimeError> {
        let (inner, key, profile) = (Arc::clone(&self.inner), key.clone(), profile.clone());
        run_blocking("the preparation of a session", move || inner.build_parts(&key, &profile)).await
    }
}

impl Inner {
    /// Builds the parts. Blocks.
    fn build_parts(
        self: &Arc<Self>,
        key: &SessionKey,
        profile: &SessionProfile,
    ) -> Result<PreparedParts, RuntimeError> {
        // A live session handle must not start a session of a tenant that is being deleted.
        self.deletions.check(&key.tenant)?;
        let policy = self.sandboxes.policies().policy(&key.tenant);
        let (model, hosted) = self.model_of(&key.tenant, profile)?;
        let mut given = self.sessions().get(key).map(|known| known.secrets.clone()).unwrap_or_default();
        let mut complete = given.complete_for(key.session, profile)?;
        policy.apply_defaults(&mut complete);
        let kind =
            self.sandboxes.kind(profile.executor.as_deref().unwrap_or(self.config.executor().as_str()))?;
        let home = self.home.tenant(&key.tenant)?;
        if let Some(SandboxKind::BuiltIn(ExecutorKind::Docker)) = kind {
            self.home.note_containers()?;
        }
        let skills =
            profile.skills.iter().map(|pinned| home.pins.find(pinned)).collect::<Result<Vec<_>, _>>()?;
        if profile.activation == SkillActivation::Load {
            // Lists the files of the skills now, where blocking is allowed. The tools depend on whether there are
            // scripts.
            for skill in &skills {
                skill.files();
            }
        }
        let skills_on_disk: Vec<Arc<Skill>> = skills.iter().map(|skill| Arc::clone(skill.skill())).collect();
        given.parse_texts(&skills_on_disk);
        check_secrets(&skills_on_disk, profile, &given)?;
        let workspace = match (&profile.workspace, &kind) {
            (Some(directory), kind) => Some(self.check_workspace(directory, kind.as_ref())?),
            (None, Some(_)) => Some(self.own_workspace(key, &home)?),
            (None, None) => None,
        };
        let inputs = effective_inputs(&skills_on_disk, profile, given.inputs(), &complete.environment);
        // The environment now includes the variables of the tenant's policy, so these are marked, too.
        complete.mark_sensitive(&sensitive_variables(&skills_on_disk));
        if let Some(known) = self.sessions().get_mut(key) {
            known.secrets.parse_texts(&skills_on_disk);
            known.secrets.mark_sensitive(&profile.secret_names.environment);
        }
        complete.environment.extend(inputs.environment);
        complete.secrets.extend(inputs.secrets);
        let packages = self.python_packages(profile, &home, kind.as_ref())?;
        if let Some(packages) = &packages {
            let packages_path = packages.python_path();
            let path = match complete.environment.get("PYTHONPATH") {
                Some(path) => format!("{packages_path}:{path}"),
                None => packages_path,
            };
            complete.environment.insert("PYTHONPATH".to_owned(), path);
        }
        let options = ContextOptions {
            workspace: workspace.clone(),
            data: Some(home.data.clone()),
            environment: complete.environment,
            secrets: complete.secrets,
            ..ContextOptions::default()
        };
        let redactor = redactor_with(&options, &self.models.secrets(&self.config));
        redactor.extend(&policy.redactor());
        #[cfg(feature = "mcp")]
        let servers = self.server_parts(key, profile, &home, workspace.as_deref(), &redactor)?;
        #[cfg(feature = "mcp")]
        redactor.extend(&conjure_base::Redactor::new(mcp::secrets(&servers)));
        let source = match kind {
            Some(kind) => {
                let context =
                    create_context(&skills_on_disk, &self.config, options).map_err(RuntimeError::Sandbox)?;
                // The sandbox uses the path in the context, so both paths must be the same.
                if let Some(directory) =
                    workspace.as_ref().filter(|directory| *directory != context.workspace().path())
                {
                    let reason = "its path now contains a symbolic link".to_owned();
                    return Err(RuntimeError::Workspace { path: directory.clone(), reason });
                }
                let mounts = self.workspace_mounts(profile, workspace.as_deref())?;
                let context = limit_network(context.with_workspace_mounts(mounts), profile, &kind)?;
                Some(match packages {
                    Some(packages) => self.packaged_source(key, &home, context, packages)?,
                    None => self.sandboxes.source(key, &home, &kind, &self.config, context)?,
                })
            }
            None => None,
        };
        let artifacts = self
            .artifacts
            .as_ref()
            .map(|artifacts| artifacts.session_services(key, profile, &home, self.record, skills_on_disk));
        let (inputs, values) = (inputs.prompt_text, inputs.values);
        let model_name = profile.model.clone();
        Ok(PreparedParts {
            model_name,
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
        })
    }

    /// The model of this profile, and the session's files at the model's service. Blocks.
    pub(crate) fn model_of(
        &self,
        tenant: &TenantId,
        profile: &SessionProfile,
    ) -> Result<(Arc<dyn Model>, Option<HostedSessionFiles>), RuntimeError> {
        let policy = self.sandboxes.policies().policy(tenant);
        let name = self.models.name(&policy.models, profile.model.as_deref(), &self.config)?;
        let gate = self.sandboxes.policies().model_calls();
        let call =
            CallSettings { effort: profile.effort.clone(), fast: profile.fast, ..CallSettings::default() };
        let model = self.models.find(&policy.models, name, tenant, gate, &self.config, &call)?;
        hosted_sessions::check(&profile.hosted, name, &*model)?;
        let hosted = hosted_sessions::files_of(&profile.hosted, name, &*model)?;
        Ok((model, hosted))
    }

    /// The second paths of workspace directories. Creates missing directories. Commands may have replaced a directory by
    /// a link, so no link is followed.
    fn workspace_mounts(
        &self,
        profile: &SessionProfile,
        workspace: Option<&Path>,
    ) -> Result<Vec<WorkspaceMount>, RuntimeError> {
        let Some(workspace) = workspace.filter(|_| !profile.workspace_mounts.is_empty()) else {
            return Ok(Vec::new());
        };
        let failed = |dir: &str, errno: rustix::io::Errno| RuntimeError::Workspace {
            path: workspace.join(dir),
            reason: format!("the directory cannot be made: {errno}"),
        };
        let root = DirHandle::open_direct(workspace).map_err(|errno| failed("", errno))?;
        let mounts = profile.workspace_mounts.iter().map(|(target, dir)| {
            root.create_dirs(Path::new(dir), Mode::from_raw_mode(0o755))
                .map_err(|errno| failed(dir, errno))?;
            Ok(WorkspaceMount { dir: dir.into(), target: target.into() })
        });
        mounts.collect()
    }

    /// The session's own workspace directory. Creates it if necessary.
    pub(crate) fn own_workspace(&self, key: &SessionKey, home: &TenantDir) -> Result<PathBuf, RuntimeError> {
        let refused = |error: SandboxError| RuntimeError::Sandbox(error.into());
        if self.record == JournalLocation::OnDisk {
            return home.data.named_workspace(&key.session.stored_name()).map_err(refused);
        }
        if let Some(known) = self.sessions().get(key).and_then(|known| known.workspace.clone()) {
            return Ok(known.path().to_owned());
        }
        let made = Arc::new(home.data.workspace().map_err(refused)?);
        let path = made.path().to_owned();
        self.sessions().entry(key.clone()).or_default().workspace = Some(made);
        Ok(path)
    }

    /// Checks the embedder's directory and returns its path. The directory must exist at the recorded path without links.
    /// Unless the sandbox is `local`, it must lie outside of our data directory, which holds other sessions' files.
    fn check_workspace(
        &self,
        directory: &Path,
        kind: Option<&SandboxKind<'_>>,
    ) -> Result<PathBuf, RuntimeError> {
        let refused = |reason: String| RuntimeError::Workspace { path: directory.to_owned(), reason };
        let real = SessionWorkspace::at_real_path(directory).map_err(|error| refused(error.to_string()))?;
        let real = real.path().to_owned();
        let data = self.home.path();
        let isolates = !matches!(kind, Some(SandboxKind::BuiltIn(ExecutorKind::Local)));
        if isolates && (real.starts_with(data) || data.starts_with(&real)) {
            let how = if real.starts_with(data) { "lies in" } else { "contains" };
            return Err(refused(format!(
                "it {how} the data directory `{}`, where the files of all sessions are",
                data.display()
            )));
        }
        Ok(real)
    }
}
