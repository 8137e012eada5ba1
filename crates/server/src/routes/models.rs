//! Routes of models: `/v1/models`.

use axum::Json;
use conjure_api::{IdPage, ModelInfo, ModelListQuery};

use crate::http::{NoQuery, Path, RawQuery};
use crate::routes::call::{Call, JsonResult};
use crate::routes::route::Route;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/v1/models", list), Route::get("/v1/models/{model_id}", retrieve)]
}

async fn list(call: Call, RawQuery(query): RawQuery) -> JsonResult<IdPage<ModelInfo>> {
    let query = ModelListQuery::from_query(&query)?;
    call.agent_parts().model_names().list(&query).map(Json)
}

async fn retrieve(call: Call, Path(name): Path<String>, _: NoQuery) -> JsonResult<ModelInfo> {
    call.agent_parts().model_names().get(&name).map(Json)
}
