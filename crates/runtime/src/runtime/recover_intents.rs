//! Startup recovery of interrupted session opens and deletes.
//!
//! Only sessions with an intent record are inspected:
//!
//! - The workspace of a session without a record is removed.
//! - A session with a record stays, since a caller may have its id.
//! - Skills that no session of the tenant has are removed.
//!
//! The exclusive tenant lock keeps others from opening or deleting sessions meanwhile. If another runtime holds the
//! lock, the tenant is left to the next start.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, SessionId, SystemClock, TenantId};
use conjure_journal::{JournalError, SessionKey};

use crate::runtime::data::artifact_pins::remove_pins;
use crate::runtime::data::data_layout::{RuntimeDir, TenantDir};
use crate::runtime::error::RuntimeError;
use crate::runtime::remote_cleanup::NoteStore;
use crate::runtime::session::readers::session_reader::SessionReader;
use crate::runtime::task_set::run_blocking;
use crate::runtime::tenants::TenantDeletions;

/// How long to wait for other tasks of this process that open sessions.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Recovers the interrupted operations of all tenants. Failures are logged, and the next start tries again.
pub(super) async fn recover(home: &Arc<RuntimeDir>, records: &SessionReader) -> Result<(), RuntimeError> {
    let data_dir = Arc::clone(home);
    let tenants =
        run_blocking("looking for interrupted operations", move || Ok(data_dir.tenants_with_intents()))
            .await?;
    let deletions = TenantDeletions::new(home.path());
    for tenant in tenants {
        // The deletion of the tenant removes everything.
        let (deletions, owner) = (deletions.clone(), tenant.clone());
        let is_kept = run_blocking("checking whether a tenant is being deleted", move || {
            Ok(deletions.check(&owner).is_ok())
        });
        if !is_kept.await? {
            continue;
        }
        if let Err(error) = recover_tenant(home, &tenant, records).await {
            tracing::warn!(%tenant, %error, "interrupted operations of a tenant's sessions were not recovered");
        }
    }
    Ok(())
}

async fn recover_tenant(
    home: &Arc<RuntimeDir>,
    tenant: &TenantId,
    records: &SessionReader,
) -> Result<(), RuntimeError> {
    let notes = NoteStore::new(home);
    let (data_dir, owner) = (Arc::clone(home), tenant.clone());
    let existing = run_blocking("the opening of a data directory", move || data_dir.existing(&owner)).await?;
    let Some(home) = existing else { return Ok(()) };
    let Some(exclusive_guard) = home.tenant_lock.exclusive(SystemClock.deadline(LOCK_TIMEOUT)).await? else {
        return Ok(());
    };
    let sessions = home.intents_pending().await?;
    let mut done = Vec::with_capacity(sessions.len());
    for session in sessions {
        match recover_session(&home, &SessionKey::new(tenant.clone(), session), records, &notes).await {
            Ok(()) => done.push(session),
            Err(error) => {
                tracing::warn!(%tenant, %session, %error, "an interrupted operation of a session was not recovered")
            }
        }
    }
    let tenant_dir = Arc::clone(&home);
    let mut unused: BTreeSet<_> =
        run_blocking("listing pinned skills", move || tenant_dir.pins.all()).await?.into_iter().collect();
    records.without_used(tenant, &mut unused).await?;
    run_blocking("removing skills", move || {
        unused.iter().try_for_each(|digest| home.pins.remove(digest, &exclusive_guard))?;
        home.pins.remove_drafts().map_err(|error| RuntimeError::data(home.data.path(), &error))?;
        done.into_iter().for_each(|session| home.clear(session));
        Ok(())
    })
    .await
}

async fn recover_session(
    home: &Arc<TenantDir>,
    key: &SessionKey,
    records: &SessionReader,
    notes: &NoteStore,
) -> Result<(), RuntimeError> {
    match records.info(key).await {
        // The session is complete, or nothing of it was deleted.
        Ok(info) if info.events > 0 => return notes.remove_session(key.session).await,
        // No caller ever got a session without events.
        Ok(_) => match records.journal().delete_session(key).await {
            Ok(()) | Err(JournalError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        },
        Err(RuntimeError::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    tracing::info!(session = %key, "removed the leftovers of a session without a record");
    remove_workspace(home, key.session).await
}

async fn remove_workspace(home: &Arc<TenantDir>, session: SessionId) -> Result<(), RuntimeError> {
    let home = Arc::clone(home);
    run_blocking("the removal of a workspace", move || {
        remove_pins(&home, session)?;
        let removed = home.data.remove_workspace(&session.stored_name());
        removed.map(drop).map_err(|error| RuntimeError::Sandbox(error.into()))
    })
    .await
}
