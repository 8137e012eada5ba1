//! Deletes the remains of sessions after a crash: runtime sessions that the server opened and that have no row.
//!
//! Either their creation was never acknowledged, or their deletion was interrupted. A young session is kept, because another server may be
//! creating it.

use std::time::Duration;

use conjure_base::{Clock as _, SessionId, SystemClock, TenantId};

use super::create::SERVER_NOTE;
use super::outputs::delete_without_row;
use super::store::SessionStore;
use crate::http::ApiError;
use crate::state::ServerState;

/// The minimum age of a session that is deleted. Creating a session takes less time.
const MIN_AGE: Duration = Duration::from_secs(600);

/// Deletes the sessions without a row, which no client knows.
pub(crate) async fn sweep(state: &ServerState, sessions: Vec<(TenantId, SessionId)>) {
    for (tenant, id) in sessions {
        if state.closing.is_cancelled() {
            return;
        }
        if let Err(error) = sweep_one(state, &tenant, id).await {
            tracing::warn!(session = %id, %error, "a leftover session could not be checked or deleted");
        }
    }
}

async fn sweep_one(state: &ServerState, tenant: &TenantId, id: SessionId) -> Result<(), ApiError> {
    if SessionStore::new(&*state.records, tenant).contains(id).await? {
        return Ok(());
    }
    let (name, value) = SERVER_NOTE;
    let profile = state.runtime.profile(tenant, id).await?;
    if profile.metadata.get(name).map(String::as_str) != Some(value) {
        return Ok(());
    }
    let opened = state.runtime.summary(tenant, id).await?.opened;
    if SystemClock.timestamp().duration_since(opened) < MIN_AGE {
        return Ok(());
    }
    delete_without_row(state, tenant, id).await?;
    tracing::info!(session = %id, "a session without a row was deleted");
    Ok(())
}
