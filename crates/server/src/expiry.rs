//! Deletes what has expired, for every tenant: stored answers that are older than a day, and files.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};

use crate::http::ApiError;
use crate::idempotency::StoredAnswers;
use crate::objects::Files;
use crate::state::ServerState;

/// The interval between deletions.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Deletes what has expired at the start and every hour, until the server closes.
pub(crate) async fn keep_deleting_expired(state: Arc<ServerState>) {
    loop {
        if let Err(error) = delete_expired(&state).await {
            tracing::warn!(%error, "expired idempotency keys and files were not deleted");
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = state.closing.cancelled() => return,
        }
    }
}

async fn delete_expired(state: &ServerState) -> Result<(), ApiError> {
    for tenant in state.admission.tenants().await? {
        let answers = StoredAnswers::new(Arc::clone(&state.records), tenant.clone());
        answers.delete_expired(SystemClock.timestamp()).await?;
        let files = Files::new(&*state.records, &tenant);
        for id in files.expired().await? {
            files.delete(id).await?;
            state.runtime.remove_file(&tenant, &id.to_string()).await?;
        }
    }
    Ok(())
}
