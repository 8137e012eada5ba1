//! Middleware for every request: its id, authentication, the body of an error, and a line in the audit log.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Json;
use axum::body::HttpBody as _;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use conjure_api::RequestId;
use conjure_base::{Clock as _, Deadline, SystemClock};

use crate::access::Caller;
use crate::http::error::ApiError;
use crate::metrics::count_request;
use crate::state::ServerState;

/// The paths that need no key: probes of the machine that runs the server, and the API description.
const OPEN_PATHS: [&str; 3] = ["/healthz", "/readyz", "/openapi.json"];

/// Processes a request.
pub(crate) async fn request_scope(
    State(state): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    // Without entropy, requests have no id and are still answered.
    let id = RequestId::random().ok();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let has_body = !request.body().is_end_stream();
    let started = SystemClock.timestamp();
    let begun = SystemClock.deadline(Duration::ZERO);
    // Metrics are labelled with the route's path, so the number of series is bounded.
    let route = request.extensions().get::<MatchedPath>().cloned();
    let caller = if OPEN_PATHS.contains(&path.as_str()) {
        Ok(Caller::anonymous(state.options.tenant.clone()))
    } else {
        state.admission.admit(request.headers()).await.and_then(|caller| within_rate(&state, caller))
    };
    let tenant = caller.as_ref().ok().map(|caller| caller.tenant.to_string());
    let key = caller.as_ref().ok().and_then(|caller| caller.key).map(|key| key.to_string());
    let response = match caller {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refused) => refused.into_response(),
    };
    let mut response = finish(response, id);
    if has_body && !response.status().is_success() {
        // The body may be unread, so no other request can follow on this connection. This header tells the client to open a new one.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let route = route.as_ref().map_or("other", MatchedPath::as_str);
    count_request(route, &method, response.status().as_u16(), elapsed(begun));
    tracing::info!(
        target: "conjure::audit",
        request = id.map(|id| id.to_string()),
        %method,
        path,
        status = response.status().as_u16(),
        tenant,
        key,
        milliseconds = SystemClock.timestamp().millis().saturating_sub(started.millis()),
        "a request was answered"
    );
    response
}

/// Returns the caller, unless its key exceeded its rate limit.
fn within_rate(state: &ServerState, caller: Caller) -> Result<Caller, ApiError> {
    // Monotonic time since the first request of this process.
    static START: OnceLock<Deadline> = OnceLock::new();
    let Some(key) = caller.key else { return Ok(caller) };
    let now = elapsed(*START.get_or_init(|| SystemClock.deadline(Duration::ZERO)));
    match state.rate_limit.admit(key, now) {
        Ok(()) => Ok(caller),
        Err(wait) => Err(ApiError::rate_limited(
            "this key makes too many requests; send fewer, or ask for a higher limit",
            wait,
        )),
    }
}

/// The time since this moment.
fn elapsed(since: Deadline) -> Duration {
    let now = SystemClock.deadline(Duration::ZERO);
    match (now.instant(), since.instant()) {
        (Some(now), Some(since)) => now.saturating_duration_since(since),
        _ => Duration::ZERO,
    }
}

/// Adds the request's id, and writes the body of an error.
fn finish(mut response: Response, id: Option<RequestId>) -> Response {
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        let headers = std::mem::take(response.headers_mut());
        response = (error.status(), Json(error.body(id))).into_response();
        for (name, value) in headers.iter().filter(|(name, _)| !response_body_header(name.as_str())) {
            response.headers_mut().insert(name.clone(), value.clone());
        }
    }
    if let Some(Ok(value)) = id.map(|id| HeaderValue::from_str(&id.to_string())) {
        response.headers_mut().insert("request-id", value);
    }
    response
}

/// Whether the header describes the body that is replaced.
fn response_body_header(name: &str) -> bool {
    matches!(name, "content-type" | "content-length")
}

/// The answer if no route has this path.
pub(crate) async fn not_found(method: Method, uri: Uri) -> ApiError {
    ApiError::not_found(format!("there is no route {method} {}", uri.path()))
}

/// The answer if the path exists but does not support the method.
pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::method_not_allowed(format!("{} has no method {method}", uri.path()))
}
