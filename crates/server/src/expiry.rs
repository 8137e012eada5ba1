//! Deletes what has expired, for every tenant: stored answers that are older than a day, and files.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock, TenantId};

use crate::http::ApiError;
use crate::idempotency::StoredAnswers;
use crate::objects::Files;
use crate::state::ServerState;

/// The interval between deletions.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Deletes what has expired at the start and every hour, until the server closes.
pub(crate) async fn keep_deleting_expired(state: Arc<ServerState>) {
    loop {
        match state.admission.tenants().await {
            Ok(tenants) => {
                for tenant in tenants {
                    if let Err(error) = delete_expired(&state, &tenant).await {
                        tracing::warn!(%tenant, %error, "expired idempotency keys and files were not deleted");
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "the tenants with expired files could not be listed"),
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = state.closing.cancelled() => return,
        }
    }
}

async fn delete_expired(state: &ServerState, tenant: &TenantId) -> Result<(), ApiError> {
    let answers = StoredAnswers::new(Arc::clone(&state.records), tenant.clone());
    answers.delete_expired(SystemClock.timestamp()).await?;
    let files = Files::new(&*state.records, tenant);
    for id in files.expired().await? {
        // The row is deleted last, so that a failure is repaired an hour later.
        state.runtime.remove_file(tenant, &id.to_string()).await?;
        files.remove(id).await?;
    }
    Ok(())
}
