//! The OpenAPI document: `/openapi.json`.

use axum::http::header;
use axum::response::IntoResponse;
use conjure_api::OPENAPI;

use crate::routes::route::Route;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/openapi.json", document).open()]
}

async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}
