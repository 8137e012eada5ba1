//! Routes of the Messages API: `/v1/messages`.
//!
//! If the model's service speaks this API, the request is forwarded unchanged except for the server's key and the service's name of the
//! model. The response is returned unchanged. For any other model, request and response are converted.

use axum::Json;
use axum::body::Body as ResponseBody;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use conjure_api::{MessageCreate, MessageHead, RequestBody as _};
use conjure_conversation::{Model as _, ModelEvent};
use conjure_runtime::anthropic::PassthroughRequest;
use futures_util::StreamExt as _;

use crate::access::Scope;
use crate::http::{ApiError, Body, NoQuery};
use crate::messages::failure;
use crate::messages::{MessageAnswer, call_settings, model_request, stream_answer};
use crate::routes::call::Call;
use crate::routes::route::Route;

/// The response headers of the service that clients use.
const PASSED_HEADERS: [&str; 3] = ["content-type", "retry-after", "x-should-retry"];

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::post(Scope::Run, "/v1/messages", create),
        Route::post(Scope::Run, "/v1/messages/count_tokens", count_tokens),
    ]
}

async fn create(call: Call, _: NoQuery, headers: HeaderMap, Body(body): Body) -> Result<Response, ApiError> {
    let model = answering(&call, &body)?;
    if let Some(passed) = pass_on(&call, &model, &["messages"], &headers, &body).await? {
        return Ok(passed);
    }
    let create = MessageCreate::from_json(&body)?;
    let (is_streamed, settings) = (create.stream, call_settings(&create)?);
    let request = model_request(create)?;
    let answer = MessageAnswer::new(model.clone())?;
    let mut calls = call.state.runtime.model(call.tenant(), &model, &settings)?.stream(request);
    if is_streamed {
        return stream_answer(answer, calls).await;
    }
    loop {
        match calls.next().await {
            Some(Ok(ModelEvent::Finished(response))) => {
                return Ok(Json(answer.complete(&response)).into_response());
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(failure(&error)),
            None => return Err(ApiError::internal("the model's answer ended too early")),
        }
    }
}

async fn count_tokens(
    call: Call,
    _: NoQuery,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let model = answering(&call, &body)?;
    let passed = pass_on(&call, &model, &["messages", "count_tokens"], &headers, &body).await?;
    passed.ok_or_else(|| {
        ApiError::invalid(format!(
            "model: the service of `{model}` counts no tokens; only one that speaks the Messages API does"
        ))
    })
}

/// The name of the model that answers.
fn answering(call: &Call, body: &[u8]) -> Result<String, ApiError> {
    let MessageHead { model } = MessageHead::from_json(body)?;
    call.agent_parts().model_names().answering(&model)
}

/// Forwards the request to a service of the Messages API. `None` for any other model.
async fn pass_on(
    call: &Call,
    model: &str,
    path: &'static [&'static str],
    headers: &HeaderMap,
    body: &axum::body::Bytes,
) -> Result<Option<Response>, ApiError> {
    let Some(service) = call.state.runtime.messages_service(call.tenant(), model)? else { return Ok(None) };
    let request = PassthroughRequest {
        path,
        body: body.clone(),
        model: service.model().to_owned(),
        betas: headers.get("anthropic-beta").cloned(),
    };
    let answer = service.pass_on(request).await.map_err(|error| failure(&error))?;
    let mut response = Response::new(ResponseBody::from_stream(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    for name in PASSED_HEADERS {
        if let Some(value) = answer.headers.get(name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    Ok(Some(response))
}
