//! Routes of models: `/v1/models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use conjure_api::{IdPage, ModelInfo, ModelListQuery};

use crate::access::Caller;
use crate::http::{ApiError, NoQuery, Path, RawQuery};
use crate::objects::AgentParts;
use crate::routes::route::Route;
use crate::state::ServerState;

type Shared = State<Arc<ServerState>>;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/v1/models", list), Route::get("/v1/models/{model_id}", retrieve)]
}

async fn list(
    State(state): Shared,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<IdPage<ModelInfo>>, ApiError> {
    let query = ModelListQuery::from_query(&query)?;
    AgentParts::new(&state, &caller.tenant).model_names().list(&query).map(Json)
}

async fn retrieve(
    State(state): Shared,
    caller: Caller,
    Path(name): Path<String>,
    _: NoQuery,
) -> Result<Json<ModelInfo>, ApiError> {
    AgentParts::new(&state, &caller.tenant).model_names().get(&name).map(Json)
}
