//! Completing, at the start, what broke off: sessions that were being opened or deleted when their host died, or could not.
//!
//! Only what has a mark (`marks`) is looked at. Of a session that was not recorded, or is not any more, the workspace goes; one
//! that is recorded stays, since somebody may have been given it. Where there was a mark, skills that no session of the tenant
//! has go, too. Nobody who lives opens or deletes sessions of the tenant meanwhile (`gate`); where somebody does just now, the
//! tenant is left to the next start.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, SessionId, SystemClock, TenantId};
use conjure_journal::{JournalError, SessionKey};

use super::error::RuntimeError;
use super::home::{Home, TenantHome};
use super::kept::remove_kept;
use super::outfit::blocking;
use super::records::Records;
use super::remains::Shelf;
use super::tenants::Gone;

/// How long those of this process that open sessions are waited for.
const WAITING: Duration = Duration::from_secs(5);

/// Completes what broke off, of all tenants. What cannot be completed is told, and left to the next start.
pub(super) async fn complete(home: &Arc<Home>, records: &Records) -> Result<(), RuntimeError> {
    let looking = Arc::clone(home);
    let marked = blocking("looking for what broke off", move || Ok(looking.marked())).await?;
    let gone = Gone::of(home.path());
    for tenant in marked {
        // All of it goes.
        let (gone, whose) = (gone.clone(), tenant.clone());
        let is_kept = blocking("looking whether a tenant is deleted", move || Ok(gone.check(&whose).is_ok()));
        if !is_kept.await? {
            continue;
        }
        if let Err(error) = complete_of(home, &tenant, records).await {
            tracing::warn!(%tenant, %error, "what broke off of a tenant's sessions is left");
        }
    }
    Ok(())
}

async fn complete_of(home: &Arc<Home>, tenant: &TenantId, records: &Records) -> Result<(), RuntimeError> {
    let remains = Shelf::of(home);
    let (all, wanted) = (Arc::clone(home), tenant.clone());
    let existing = blocking("the opening of a data folder", move || all.existing(&wanted)).await?;
    let Some(home) = existing else { return Ok(()) };
    let Some(alone) = home.gate.alone(SystemClock.deadline(WAITING)).await? else { return Ok(()) };
    let marked = home.marked().await?;
    let mut done = Vec::with_capacity(marked.len());
    for session in marked {
        match complete_session(&home, &SessionKey::new(tenant.clone(), session), records, &remains).await {
            Ok(()) => done.push(session),
            Err(error) => tracing::warn!(%tenant, %session, %error, "what broke off of a session is left"),
        }
    }
    let pins = Arc::clone(&home);
    let mut unused: BTreeSet<_> =
        blocking("looking at kept skills", move || pins.pins.all()).await?.into_iter().collect();
    records.without_used(tenant, &mut unused).await?;
    blocking("removing skills", move || {
        unused.iter().try_for_each(|digest| home.pins.remove(digest, &alone))?;
        home.pins.clear().map_err(|error| RuntimeError::data(home.data.path(), &error))?;
        done.into_iter().for_each(|session| home.clear(session));
        Ok(())
    })
    .await
}

async fn complete_session(
    home: &Arc<TenantHome>,
    key: &SessionKey,
    records: &Records,
    remains: &Shelf,
) -> Result<(), RuntimeError> {
    match records.info(key).await {
        // It is whole, or nothing of it was deleted.
        Ok(info) if info.events > 0 => return remains.take_back(key.session).await,
        // Nobody was given what holds nothing.
        Ok(_) => match records.journal().delete_session(key).await {
            Ok(()) | Err(JournalError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        },
        Err(RuntimeError::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    tracing::info!(session = %key, "removed what was left of a session that is not recorded");
    remove_workspace(home, key.session).await
}

async fn remove_workspace(home: &Arc<TenantHome>, session: SessionId) -> Result<(), RuntimeError> {
    let home = Arc::clone(home);
    blocking("the removal of a workspace", move || {
        remove_kept(&home, session)?;
        let removed = home.data.remove_workspace(&session.to_string());
        removed.map(drop).map_err(|error| RuntimeError::Sandbox(error.into()))
    })
    .await
}
