//! Probes: whether the server lives, and whether it takes work.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::http::ApiError;
use crate::routes::route::Route;
use crate::state::ServerState;

/// When to ask again.
const RETRY: Duration = Duration::from_secs(5);

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/healthz", healthz).open(), Route::get("/readyz", readyz).open()]
}

/// The process answers.
async fn healthz() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// The server takes work: it is not about to stop.
async fn readyz(State(state): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    if state.closing.is_cancelled() {
        return Err(ApiError::overloaded("the server stops", RETRY));
    }
    if !state.runtime.health().is_good() {
        return Err(ApiError::overloaded("the journal is not open, or no turns begin", RETRY));
    }
    Ok(Json(json!({"status": "ready"})))
}
