//! Deletes a tenant with everything it has.
//!
//! An intent record is written first (`deletion_intents`) and removed at the end. The next start completes an
//! interrupted deletion. The steps, in order:
//!
//! - From now on, no caller can open sessions of the tenant.
//! - The tenant's live sessions and their sandboxes end.
//! - Their files at models' services are written to notes (`remote_cleanup`).
//! - The journal removes the sessions and counters.
//! - The tenant's directory is removed.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock, TenantId};
use conjure_journal::LeaseOwner;

use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::remote_cleanup::{DeletionReport, RemoteLeftovers};
use crate::runtime::task_set::run_blocking;

/// How long the tenant's sessions may take to end. Also how long to wait for tasks that are opening a session of the
/// tenant.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

impl Runtime {
    /// Deletes a tenant with everything it has, for ever: sessions, workspaces, skills and contents, counters and
    /// spending, its catalogs, and its data directory. Other tenants are not affected.
    ///
    /// - The tenant's live sessions here end first. Meanwhile no caller can open or find sessions of the tenant.
    /// - The deletion continues even if the future is dropped. After a crash the next start completes it.
    /// - For a tenant that has nothing, this succeeds.
    ///
    /// Files of its sessions at models' services are deleted as for one session ([`Runtime::delete`]), with the
    /// tenant's own models and key. So keep the tenant's policy until nothing remains.
    ///
    /// Skills that were uploaded from this data directory are deleted, too, if only this tenant has the key
    /// ([`TenantPolicy::anthropic`](crate::TenantPolicy::anthropic)). Skills under a shared key stay.
    ///
    /// The tenant's policy belongs to the embedder, and stays; see [`Runtime::reset_tenant`]. If a session is opened
    /// afterwards, that creates a new tenant of this name.
    ///
    /// # Errors
    ///
    /// If another process has or opens a session of the tenant, or if something does not end in time or cannot be
    /// removed. The tenant's sessions stay refused until a repeated call, or the next start, completes the deletion.
    pub async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletionReport, RuntimeError> {
        let (runtime, tenant) = (self.clone(), tenant.clone());
        let deleting = async move {
            let leftovers = runtime.remove_tenant(&tenant).await?;
            Ok(runtime.delete_remote_now(leftovers).await)
        };
        self.inner.tasks.run("the deletion of a tenant", deleting).await
    }

    pub(crate) async fn remove_tenant(&self, tenant: &TenantId) -> Result<RemoteLeftovers, RuntimeError> {
        let factory = &self.inner.factory;
        let deletions = factory.deletions.clone();
        let exclusive = Arc::clone(deletions.exclusive());
        let _exclusive = exclusive.lock().await;
        let deadline = SystemClock.deadline(STOP_TIMEOUT);
        let (intents, owner) = (deletions.clone(), tenant.clone());
        run_blocking("noting that a tenant is deleted", move || intents.begin(&owner)).await?;
        let home = factory.tenant_dir(tenant).await?;
        // From here on, every task that was opening a session has finished, or sees the intent record.
        let Some(exclusive_guard) = home.tenant_lock.exclusive(deadline).await? else {
            return Err(home.tenant_lock.busy());
        };
        let process_lock = self.inner.process_lock.clone();
        let is_dead = move |owner: &LeaseOwner| {
            process_lock.as_ref().is_some_and(|process_lock| process_lock.is_dead(owner))
        };
        self.inner.tree.end_tenant(tenant, deadline).await?;
        #[cfg(feature = "mcp")]
        factory.end_tenant_servers(tenant, deadline).await?;
        // No session can be started any more, so the records of the sessions do not change.
        let mut leftovers = RemoteLeftovers::default();
        #[cfg(feature = "anthropic")]
        self.note_skills(tenant, &mut leftovers).await?;
        self.record_notes(tenant, &mut leftovers).await?;
        // A new deadline, since reading all records may have taken long.
        let deadline = SystemClock.deadline(STOP_TIMEOUT);
        self.inner.tree.delete_tenant(tenant, &is_dead, deadline).await?;
        for key in self.registry().keys().into_iter().filter(|key| key.tenant() == Some(tenant)) {
            self.registry().unregister(key, deadline).await?;
        }
        factory.forget_tenant(tenant).await?;
        let (data_dir, owner) = (Arc::clone(&factory.home), tenant.clone());
        run_blocking("the removal of a tenant's directory", move || {
            data_dir.remove(&owner)?;
            deletions.end(&owner)
        })
        .await?;
        drop(exclusive_guard);
        Ok(leftovers)
    }
}
