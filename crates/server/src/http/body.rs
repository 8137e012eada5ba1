//! JSON bodies of requests.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, JsonRejection};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;

use crate::http::error::ApiError;

/// The JSON body of a request. Its content type is not looked at: every body here is JSON.
#[derive(Debug, Clone)]
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state).await.map_err(|error| refused_body(&error))?;
        // A POST without a body is one with an empty object, such as `archive`.
        let bytes = if bytes.is_empty() { Bytes::from_static(b"{}") } else { bytes };
        match Json::from_bytes(&bytes) {
            Ok(Json(value)) => Ok(Self(value)),
            Err(JsonRejection::JsonDataError(error)) => Err(ApiError::invalid(plain(&error.body_text()))),
            Err(error) => Err(ApiError::invalid(format!("the body is not JSON: {}", plain(&error.body_text())))),
        }
    }
}

/// The message without the framework's introduction.
fn plain(text: &str) -> String {
    let rest = text
        .strip_prefix("Failed to deserialize the JSON body into the target type: ")
        .or_else(|| text.strip_prefix("Failed to parse the request body as JSON: "));
    rest.unwrap_or(text).to_owned()
}

pub(crate) fn refused_body(error: &BytesRejection) -> ApiError {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        ApiError::too_large("the body is larger than this server takes")
    } else {
        ApiError::invalid("the body ended too early")
    }
}
