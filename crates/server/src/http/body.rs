//! What a handler reads of a request: the bytes of its body, and its query string.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;

use crate::http::error::ApiError;

/// The bytes of a body, which is JSON whatever its content type says.
#[derive(Debug, Clone)]
pub(crate) struct Body(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        Bytes::from_request(request, state).await.map(Self).map_err(|error| refused(&error))
    }
}

fn refused(error: &BytesRejection) -> ApiError {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        ApiError::too_large("the body is larger than this server takes")
    } else {
        ApiError::invalid("the body ended too early")
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
