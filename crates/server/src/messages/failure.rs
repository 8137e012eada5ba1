//! Why a model call failed, as the API says it.

use std::time::Duration;

use conjure_api::ErrorKind;
use conjure_conversation::{ApiErrorKind, ModelError, ModelErrorKind};

use crate::http::ApiError;

/// When to try again, where the service does not say so.
const RETRY: Duration = Duration::from_secs(1);

/// The error of a client whose model call failed. A fault of the server's own key is no fault of the client.
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
