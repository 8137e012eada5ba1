//! The source of a sandbox that belongs to no session.

use std::sync::Arc;

use conjure_actors::executors::ExecutorSource;
use conjure_base::Redactor;
use conjure_journal::SessionKey;
use conjure_skill::Skill;

use crate::config::ExecutorKind;
use crate::context::{ContextOptions, create_context, redactor_with};
use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::sandbox_kinds::SandboxKind;
use crate::runtime::session::factory::session_factory::{Inner, RuntimeSessionFactory};
use crate::runtime::session::input::session_secrets::CompleteSecrets;
use crate::runtime::task_set::run_blocking;

impl RuntimeSessionFactory {
    /// The source of a sandbox of the default kind with these skills, and the redactor of its secrets. Dropping the
    /// source removes the workspace.
    pub(crate) async fn workbench_source(
        &self,
        key: &SessionKey,
        home: &Arc<TenantDir>,
        skills: &[Arc<Skill>],
    ) -> Result<(Arc<dyn ExecutorSource>, Redactor), RuntimeError> {
        let (inner, key) = (Arc::clone(&self.inner), key.clone());
        let (home, skills) = (Arc::clone(home), skills.to_vec());
        run_blocking("the preparation of a sandbox", move || inner.workbench_source(&key, &home, &skills))
            .await
    }
}

impl Inner {
    /// Blocks.
    fn workbench_source(
        &self,
        key: &SessionKey,
        home: &Arc<TenantDir>,
        skills: &[Arc<Skill>],
    ) -> Result<(Arc<dyn ExecutorSource>, Redactor), RuntimeError> {
        self.deletions.check(&key.tenant)?;
        let policy = self.sandboxes.policies().policy(&key.tenant);
        let mut tenant_secrets =
            CompleteSecrets { environment: Default::default(), secrets: Default::default() };
        policy.apply_defaults(&mut tenant_secrets);
        let name = self.config.executor().as_str();
        let kind = self.sandboxes.kind(name)?;
        let kind = kind.unwrap_or(SandboxKind::BuiltIn(self.config.executor()));
        if let SandboxKind::BuiltIn(ExecutorKind::Docker) = kind {
            self.home.note_containers()?;
        }
        let options = ContextOptions {
            data: Some(home.data.clone()),
            environment: tenant_secrets.environment,
            secrets: tenant_secrets.secrets,
            ..ContextOptions::default()
        };
        let redactor = redactor_with(&options, &self.models.secrets(&self.config));
        redactor.extend(&policy.redactor());
        let context = create_context(skills, &self.config, options).map_err(RuntimeError::Sandbox)?;
        Ok((self.sandboxes.source(key, home, &kind, &self.config, context)?, redactor))
    }
}
