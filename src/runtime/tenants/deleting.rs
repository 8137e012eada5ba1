//! Deleting a tenant with everything of theirs.
//!
//! What is begun is noted on the disk before (`gone`), and the note removed when nothing is left: what breaks off in between, the
//! next start completes. The order: nobody opens sessions of the tenant any more; those that are live end, with their
//! sandboxes; what they have at models' services is noted (`remains`); the journal forgets all of them, and what was counted; then the
//! tenant's folder goes.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock, TenantId};
use conjure_journal::Owner;

use super::super::error::RuntimeError;
use super::super::handle::Runtime;
use super::super::outfit::blocking;
use super::super::remains::{Deletion, Parting};

/// How long the tenant's sessions may take to end, and others that open some.
const STOPPING: Duration = Duration::from_secs(60);

impl Runtime {
    /// Deletes a tenant with everything of theirs, for ever: sessions, workspaces, skills and contents, what was counted of it
    /// and spent, its catalogs, its data folder. Sessions that are live here end first; while it lasts, nobody opens or finds
    /// sessions of the tenant. It goes on when the future is dropped, and the next start completes what a crash breaks off. A
    /// tenant of which nothing is there is deleted already. Others notice nothing.
    ///
    /// Files that its sessions have at their models' services are deleted there as those of one session are ([`Runtime::delete`]), by the
    /// tenant's own models and key: let it keep its policy until nothing is left. So are the skills that were uploaded from this data folder under a key that the tenant has
    /// alone ([`TenantPolicy::anthropic`](crate::TenantPolicy::anthropic)); those under a key that others have, too, stay.
    ///
    /// What the tenant may have is the host's, and stays: see [`Runtime::reset_tenant`]. Whoever opens a session of it
    /// afterwards begins a new tenant of that name.
    ///
    /// # Errors
    /// When another process has a session of the tenant, or opens one just now, or something does not end in time, or cannot be
    /// removed. The tenant stays refused then, until this is called again, or the next start has completed it.
    pub async fn delete_tenant(&self, tenant: &TenantId) -> Result<Deletion, RuntimeError> {
        let (runtime, tenant) = (self.clone(), tenant.clone());
        let deleting = async move {
            let parting = runtime.remove_tenant(&tenant).await?;
            Ok(runtime.part(parting).await)
        };
        self.inner.work.whole("the deletion of a tenant", deleting).await
    }

    pub(crate) async fn remove_tenant(&self, tenant: &TenantId) -> Result<Parting, RuntimeError> {
        let outfitter = &self.inner.outfitter;
        let gone = outfitter.gone().clone();
        let turn = Arc::clone(gone.turn());
        let _turn = turn.lock().await;
        let deadline = SystemClock.deadline(STOPPING);
        let (noting, whose) = (gone.clone(), tenant.clone());
        blocking("noting that a tenant is deleted", move || noting.begin(&whose)).await?;
        let home = outfitter.home_of(tenant).await?;
        // Whoever opens a session just now has done so, or sees the note.
        let Some(alone) = home.gate.alone(deadline).await? else { return Err(home.gate.busy()) };
        let presence = self.inner.presence.clone();
        let is_dead = move |owner: &Owner| presence.as_ref().is_some_and(|presence| presence.is_dead(owner));
        self.inner.tree.end_tenant(tenant, deadline).await?;
        // None of them is started any more, so their records stay as they are.
        let mut parting = Parting::default();
        #[cfg(feature = "anthropic")]
        self.note_skills(tenant, &mut parting).await?;
        self.note_all(tenant, &mut parting).await?;
        // However long it took to read all records.
        let deadline = SystemClock.deadline(STOPPING);
        self.inner.tree.delete_tenant(tenant, &is_dead, deadline).await?;
        for key in self.registry().keys().into_iter().filter(|key| key.tenant() == Some(tenant)) {
            self.registry().unregister(key, deadline).await?;
        }
        outfitter.forget_tenant(tenant).await?;
        let (homes, whose) = (Arc::clone(outfitter.home()), tenant.clone());
        blocking("the removal of a tenant's folder", move || {
            homes.remove(&whose)?;
            gone.end(&whose)
        })
        .await?;
        drop(alone);
        Ok(parting)
    }
}
