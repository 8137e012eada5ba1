//! Middleware for routes that create objects: one function honours the header, and the other refuses it.

use std::sync::Arc;

use axum::body::{Bytes, HttpBody as _, to_bytes};
use axum::extract::{FromRequest as _, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use conjure_base::{Clock as _, Digest, SystemClock};

use super::key::{HEADER, IdempotencyKey};
use super::stored_answers::{MAX_ANSWER, Reservation, Reserved, StoredAnswers};
use crate::access::Caller;
use crate::http::{ApiError, Body};
use crate::state::ServerState;

/// Handles a request with a key once. A repeated request gets the stored answer.
///
/// A separate task handles the first request, so it completes even if its client disconnects.
pub(crate) async fn answer_once(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    match IdempotencyKey::from_headers(request.headers()) {
        Ok(None) => next.run(request).await,
        Ok(Some(key)) => match answer(&state, &key, request, next).await {
            Ok(response) => response,
            Err(refused) => refused.into_response(),
        },
        Err(refused) => refused.into_response(),
    }
}

/// Refuses the header on a route that does not store answers.
pub(crate) async fn refuse_key(request: Request, next: Next) -> Response {
    if request.headers().contains_key(HEADER) {
        let refused = "uploads cannot have the header `Idempotency-Key`, since their bodies are not kept for comparison; leave it out";
        return ApiError::invalid(refused).into_response();
    }
    next.run(request).await
}

async fn answer(
    state: &Arc<ServerState>,
    key: &IdempotencyKey,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let tenant = Caller::of_request(request.extensions())?.tenant.clone();
    let (parts, body) = request.into_parts();
    let Body(bytes) = Body::from_request(Request::from_parts(parts.clone(), body), state).await?;
    let id = key.row_id(&parts.method, parts.uri.path());
    let running = state.running_keys.begin(&tenant, &id).ok_or_else(|| {
        ApiError::busy("a request with this `Idempotency-Key` is being answered; repeat this one later")
    })?;
    let answers = StoredAnswers::new(Arc::clone(&state.records), tenant);
    let request = Request::from_parts(parts, bytes.clone().into());
    // If the server stops meanwhile, the row stays pending: the outcome is unknown.
    let work = async move {
        let _running = running;
        match answers.reserve(&id, Digest::of_bytes(&bytes), SystemClock.timestamp()).await? {
            Reserved::Answered(response) => Ok(response),
            Reserved::First(reservation) => {
                Ok(store_answer(&answers, reservation, next.run(request).await).await)
            }
        }
    };
    state.run_to_end(work).await
}

/// Stores the answer for repeated requests, before the first client receives it.
async fn store_answer(answers: &StoredAnswers, reservation: Reservation, response: Response) -> Response {
    if !response.status().is_success() {
        let error = response.extensions().get::<ApiError>();
        // The row of a request that may have had an effect stays pending.
        if !error.is_some_and(ApiError::is_outcome_unknown) {
            report(answers.release(reservation).await);
        }
        return response;
    }
    let is_small = response.body().size_hint().exact().is_some_and(|size| size <= MAX_ANSWER as u64);
    if !is_small {
        report(answers.store_too_large(reservation).await);
        return response;
    }
    let (parts, body) = response.into_parts();
    // The body is in memory, so this neither waits nor fails.
    let json: Bytes = match to_bytes(body, MAX_ANSWER).await {
        Ok(json) => json,
        Err(error) => return ApiError::internal(error.to_string()).into_response(),
    };
    report(answers.store(reservation, parts.status, &json).await);
    Response::from_parts(parts, json.into())
}

/// Logs a failed write. The client still gets its answer, but repeated requests get the error that the outcome is unknown.
fn report(stored: Result<(), ApiError>) {
    if let Err(error) = stored {
        tracing::warn!(%error, "the row of an idempotency key was not written");
    }
}
