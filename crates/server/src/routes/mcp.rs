//! The MCP server: `/mcp`.
//!
//! The crate `conjure-mcp` implements the server. This file authenticates requests and finds their client.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body as AnyBody, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::response::Response;
use conjure_base::{Clock as _, SystemClock};
use conjure_mcp::server::SESSION_HEADER;
use serde_json::Value;

use crate::access::Scope;
use crate::http::{ApiError, Body};
use crate::mcp::OpenRequest;
use crate::mcp::new_client;
use crate::routes::call::Call;
use crate::routes::route::Route;

/// The interval at which a stream checks whether its key is still valid.
const KEY_CHECK: Duration = Duration::from_secs(2);

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::post(Scope::Run, "/mcp", answer),
        // The routes for streams and for ending sessions exist only in the revisions of the protocol before 2026-07-28.
        Route::get("/mcp", answer).needs(Scope::Run),
        Route::delete(Scope::Run, "/mcp", answer),
    ]
}

async fn answer(call: Call, parts: Parts, Body(body): Body) -> Result<Response, ApiError> {
    let session = session_of(&parts.headers)?;
    // If the client leaves during `initialize`, its session must be known all the same, or nobody would end it.
    let begins_session = session.is_none() && is_initialize(&body);
    let state = Arc::clone(&call.state);
    let work = answer_in_session(call, parts, body, session);
    if begins_session { state.run_to_end(work).await } else { work.await }
}

/// Whether the body is the request that begins a session, in the revisions of the protocol before 2026-07-28.
fn is_initialize(body: &[u8]) -> bool {
    let message: Result<Value, _> = serde_json::from_slice(body);
    message.is_ok_and(|message| message.get("method").is_some_and(|method| method == "initialize"))
}

async fn answer_in_session(
    call: Call,
    mut parts: Parts,
    body: Bytes,
    session: Option<String>,
) -> Result<Response, ApiError> {
    let request = begin_request(&call, session.as_deref()).await?;
    // The MCP service does not need the key.
    parts.headers.remove(header::AUTHORIZATION);
    parts.headers.remove("x-api-key");
    let method = parts.method.clone();
    let asked = Request::from_parts(parts, AnyBody::from(body));
    let answer = call.state.mcp.service().answer(request.client.clone(), asked).await;
    if let (Some(session), &Method::DELETE, true) = (&session, &method, answer.status().is_success()) {
        call.state.mcp.end_session(&call.caller, session).await;
    }
    if let Some(begun) = session_of(answer.headers())? {
        begin_session(&call, &begun).await?;
    }
    Ok(request.attach(answer, end_of_stream(call, method)))
}

/// Begins a client's request. A request without a session creates its client if necessary.
async fn begin_request(call: &Call, session: Option<&str>) -> Result<OpenRequest, ApiError> {
    let begin = || OpenRequest::begin(&call.state.mcp, &call.caller, session);
    if let Some(known) = begin() {
        return Ok(known);
    }
    if session.is_none() {
        call.state.mcp.insert(&call.caller, new_client(&call.state, call.tenant()).await?);
    }
    // Clients begin a new session after a 404.
    begin().ok_or_else(|| {
        ApiError::not_found("the session of the header `Mcp-Session-Id` has ended, or is not of this key; send `initialize` without it")
    })
}

/// Creates the client of a new session. If that fails, the session is ended.
async fn begin_session(call: &Call, session: &str) -> Result<(), ApiError> {
    match new_client(&call.state, call.tenant()).await {
        Ok(new) => call.state.mcp.insert_session(&call.caller, session, new).await,
        Err(error) => {
            call.state.mcp.service().end_session(session).await;
            Err(error)
        }
    }
}

fn session_of(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(SESSION_HEADER) else { return Ok(None) };
    let text = value.to_str().map_err(|_| ApiError::invalid("the header `Mcp-Session-Id` is no text"))?;
    Ok(Some(text.to_owned()))
}

/// Completes when the key is no longer valid. A stream that belongs to no call (`GET`) also ends when the server closes.
async fn end_of_stream(Call { state, caller }: Call, method: Method) {
    loop {
        tokio::select! {
            biased;
            () = state.closing.cancelled(), if method == Method::GET => return,
            () = SystemClock.sleep_until(SystemClock.deadline(KEY_CHECK)) => {}
        }
        if !state.admission.is_still_admitted(&caller).await {
            return;
        }
    }
}
