//! Probes: whether the server runs, and whether it accepts requests.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::access::Scope;
use crate::http::ApiError;
use crate::routes::route::Route;
use crate::state::ServerState;

/// The time before a retry.
const RETRY: Duration = Duration::from_secs(5);

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/healthz", healthz).open(),
        Route::get("/readyz", readyz).open(),
        Route::get("/metrics", metrics).needs(Scope::Admin),
    ]
}

/// Succeeds if the process answers.
async fn healthz() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// All metrics of the process, in the text format of Prometheus.
async fn metrics(State(state): State<Arc<ServerState>>) -> Result<impl IntoResponse, ApiError> {
    let metrics = state.options.metrics.as_ref();
    let metrics = metrics.ok_or_else(|| ApiError::not_found("this server was started without metrics"))?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.render()))
}

/// Succeeds unless the server is stopping.
async fn readyz(State(state): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    if state.closing.is_cancelled() {
        return Err(ApiError::overloaded("the server stops", RETRY));
    }
    if !state.runtime.health().is_good() {
        return Err(ApiError::overloaded("the journal is not open, or no turns begin", RETRY));
    }
    Ok(Json(json!({"status": "ready"})))
}
