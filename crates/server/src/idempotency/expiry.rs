//! Deletes stored answers that are older than a day, for every tenant.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};

use super::stored_answers::StoredAnswers;
use crate::http::ApiError;
use crate::state::ServerState;

/// The interval between deletions of expired rows.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Deletes expired rows at the start and every hour, until the server closes.
pub(crate) async fn keep_deleting_expired(state: Arc<ServerState>) {
    loop {
        if let Err(error) = delete_expired(&state).await {
            tracing::warn!(%error, "expired idempotency keys were not deleted");
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = state.closing.cancelled() => return,
        }
    }
}

async fn delete_expired(state: &ServerState) -> Result<(), ApiError> {
    for tenant in state.admission.tenants().await? {
        let answers = StoredAnswers::new(Arc::clone(&state.records), tenant);
        answers.delete_expired(SystemClock.timestamp()).await?;
    }
    Ok(())
}
