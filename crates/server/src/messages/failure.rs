//! Converts a failed model call to an error of the API.

use std::time::Duration;

use conjure_api::ErrorKind;
use conjure_conversation::{ApiErrorKind, ModelError, ModelErrorKind};

use crate::http::ApiError;

/// The time before a retry, if the service gives none.
const RETRY: Duration = Duration::from_secs(1);

/// The error for the client of a failed model call. A problem with the server's own key is a 500 and not a client error.
pub(crate) fn failure(error: &ModelError) -> ApiError {
    let message = error.to_string();
    let wait = error.retry_after.unwrap_or(RETRY);
    match &error.kind {
        ModelErrorKind::Api(ApiErrorKind::InvalidRequest) | ModelErrorKind::Exhausted(_) => {
            ApiError::invalid(message)
        }
        ModelErrorKind::Api(ApiErrorKind::NotFound) => ApiError::not_found(message),
        ModelErrorKind::Api(ApiErrorKind::RateLimit) => ApiError::rate_limited(message, wait),
        ModelErrorKind::Api(ApiErrorKind::Overloaded) | ModelErrorKind::Overloaded => {
            ApiError::overloaded(message, wait)
        }
        ModelErrorKind::Api(ApiErrorKind::Timeout) | ModelErrorKind::Timeout => {
            ApiError::new(ErrorKind::Timeout, message)
        }
        _ => ApiError::internal(message),
    }
}
