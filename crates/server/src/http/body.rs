//! Extractors for a request: the bytes of its body, the parameters of its path, and its query string.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body as RequestBody, Bytes, HttpBody as _};
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use conjure_api::no_query;
use futures_util::{StreamExt as _, stream};
use serde::de::DeserializeOwned;

use crate::http::error::ApiError;
use crate::state::ServerState;

/// The base timeout of every body, and the minimum rate in bytes per second that extends it.
const BODY_TIME: Duration = Duration::from_secs(60);
const BYTES_A_SECOND: u64 = 64 << 10;

/// The assumed size of a body without a content length.
const UNKNOWN_SIZE: u64 = 512 << 20;

/// How long a refused body is still read and discarded, so that the client can read the error.
const DISCARD_TIME: Duration = Duration::from_secs(10);

/// Aborts bodies that arrive too slowly, so that they do not hold connections open.
pub(crate) async fn limit_body_time(request: Request) -> Request {
    request.map(|body| {
        let size = body.size_hint();
        if size.exact() == Some(0) {
            return body;
        }
        let seconds = size.exact().unwrap_or(UNKNOWN_SIZE) / BYTES_A_SECOND;
        let ending = Box::pin(tokio::time::sleep(BODY_TIME + Duration::from_secs(seconds)));
        let chunks = stream::unfold(Some((body.into_data_stream(), ending)), |state| async move {
            let (mut chunks, mut ending) = state?;
            let chunk = tokio::select! {
                biased;
                chunk = chunks.next() => chunk?.map_err(io::Error::other),
                () = &mut ending => {
                    let slow = io::Error::new(io::ErrorKind::TimedOut, "the body arrives too slowly");
                    return Some((Err(slow), None));
                }
            };
            Some((chunk, Some((chunks, ending))))
        });
        RequestBody::from_stream(chunks)
    })
}

/// The bytes of a body. It is parsed as JSON whatever its content type says.
#[derive(Debug, Clone)]
pub(crate) struct Body(pub(crate) Bytes);

impl FromRequest<Arc<ServerState>> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Arc<ServerState>) -> Result<Self, ApiError> {
        let limit = state.options.body_limit;
        let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        if length.and_then(|length| length.parse().ok()).is_some_and(|length: usize| length > limit) {
            discard(request, limit).await;
            return Err(too_large());
        }
        Bytes::from_request(request, state).await.map(Self).map_err(|error| refused(&error))
    }
}

/// Reads and discards a body, up to twice the limit and for [`DISCARD_TIME`]. Many clients send all before they read the error. A client that
/// waits for `100 Continue` is not asked to send it.
async fn discard(request: Request, limit: usize) {
    if request.headers().contains_key(header::EXPECT) {
        return;
    }
    let mut chunks = request.into_body().into_data_stream();
    let mut left = limit.saturating_mul(2);
    let discarding = async {
        while let Some(Ok(chunk)) = chunks.next().await {
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DISCARD_TIME, discarding).await;
}

fn refused(error: &BytesRejection) -> ApiError {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        too_large()
    } else {
        ApiError::invalid("the body ended too early, or arrived too slowly")
    }
}

fn too_large() -> ApiError {
    ApiError::too_large("the body is larger than this server takes")
}

/// The parameters of a path. A path that is not UTF-8 matches nothing, and no object has an id that is not valid.
#[derive(Debug, Clone)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        path.map(|axum::extract::Path(path)| Self(path)).map_err(|error| {
            ApiError::not_found(match error {
                PathRejection::FailedToDeserializePathParams(error) => error.into_kind().to_string(),
                error => error.body_text(),
            })
        })
    }
}

/// The query string, without its `?`; empty if there is none.
#[derive(Debug, Clone)]
pub(crate) struct RawQuery(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for RawQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self(parts.uri.query().unwrap_or_default().to_owned()))
    }
}

/// Refuses a request with query parameters, for a route that has none. It runs before the body is read.
pub(crate) struct NoQuery;

impl<S: Send + Sync> FromRequestParts<S> for NoQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        no_query(parts.uri.query().unwrap_or_default())?;
        Ok(Self)
    }
}
