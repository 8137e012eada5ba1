//! Sandboxes of a tenant that belong to no session, for programs that run the tools themselves.

use std::sync::Arc;

use conjure_base::{Clock as _, SessionId, SystemClock, TenantId};
use conjure_conversation::ToolDefinition;
use conjure_journal::SessionKey;
use conjure_sandbox::SandboxError;
use conjure_skill::Skill;

use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::operations::sessions::open_session::LOCK_TIMEOUT;
use crate::runtime::session::select_skills::SkillSelection;
use crate::runtime::session::select_skills::choose;
use crate::runtime::task_set::run_blocking;
use crate::sandbox::START_TIMEOUT;
use crate::workbench::Workbench;

impl Runtime {
    /// The skills of this tenant's sessions if they name none. They come from the tenant's own catalog `default`, or
    /// else from that of the configuration.
    ///
    /// # Errors
    ///
    /// If there is no such catalog.
    pub fn default_skills(&self, tenant: &TenantId) -> Result<Vec<Arc<Skill>>, RuntimeError> {
        choose(self.registry(), tenant, None, &SkillSelection::All)
    }

    /// The tool definitions of a workbench with these skills.
    ///
    /// # Errors
    ///
    /// If the thread that lists their files panics.
    pub async fn workbench_definitions(
        &self,
        skills: &[Arc<Skill>],
    ) -> Result<Vec<ToolDefinition>, RuntimeError> {
        let (skills, config) = (skills.to_vec(), self.inner.factory.config.clone());
        run_blocking("the listing of skills", move || Ok(Workbench::definitions_for(&skills, &config))).await
    }

    /// Opens a workbench of this tenant: a sandbox of the configured kind with these skills, under the tenant's policy.
    /// It waits until the tenant may have one more sandbox.
    ///
    /// The workbench has its own workspace in the tenant's data directory. The workspace ends with the workbench. The
    /// workbench must end before the runtime.
    ///
    /// # Errors
    ///
    /// If the tenant has reached a quota, or if the sandbox cannot be created.
    pub async fn open_workbench(
        &self,
        tenant: &TenantId,
        skills: Vec<Arc<Skill>>,
    ) -> Result<Workbench, RuntimeError> {
        let (runtime, tenant) = (self.clone(), tenant.clone());
        let opening = async move { runtime.open_workbench_tracked(&tenant, skills).await };
        self.inner.tasks.run("the opening of a sandbox", opening).await
    }

    async fn open_workbench_tracked(
        &self,
        tenant: &TenantId,
        skills: Vec<Arc<Skill>>,
    ) -> Result<Workbench, RuntimeError> {
        let factory = &self.inner.factory;
        factory.check_tenant(tenant).await?;
        let id = SessionId::random().map_err(|error| RuntimeError::interrupted("making an id", &error))?;
        let key = SessionKey::new(tenant.clone(), id);
        let home = factory.tenant_dir(tenant).await?;
        let shared_guard = home.tenant_lock.shared(SystemClock.deadline(LOCK_TIMEOUT)).await?;
        // Checked again under the lock, since the deletion of a tenant waits for the lock, too.
        factory.check_tenant(tenant).await?;
        let (source, redactor) = factory.workbench_source(&key, &home, &skills).await?;
        drop(shared_guard);
        let refused = |error: SandboxError| RuntimeError::Sandbox(error.into());
        let deadline = SystemClock.deadline(START_TIMEOUT);
        let permit = source.acquire_permit(deadline).await.map_err(refused)?;
        let executor = source.create(deadline).await.map_err(refused)?;
        let opened = Workbench::in_sandbox(skills, &factory.config, executor.into(), redactor).await;
        // The permit is released after the sandbox is completely removed, and before the workspace is released.
        Ok(opened.map_err(RuntimeError::Sandbox)?.with_resource((permit, source)))
    }
}
