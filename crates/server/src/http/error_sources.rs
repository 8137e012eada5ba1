//! Converts the errors of lower layers to errors of the API.

use std::time::Duration;

use conjure_actors::session::SessionError;
use conjure_api::{ApiIdError, RequestError};
use conjure_journal::{JournalError, RecordError, RecordErrorKind, RecordNameError};
use conjure_runtime::RuntimeError;
use conjure_vault::VaultError;

use crate::access::ApiKeysError;
use crate::http::error::ApiError;

/// The time before a retry, if the source of the error gives none.
const RETRY: Duration = Duration::from_secs(1);

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        Self::invalid(error.to_string()).with_code(error.code())
    }
}

/// No object can have such an id, so the object does not exist.
impl From<ApiIdError> for ApiError {
    fn from(error: ApiIdError) -> Self {
        Self::not_found(error.to_string())
    }
}

impl From<RecordNameError> for ApiError {
    fn from(error: RecordNameError) -> Self {
        RecordError::from(error).into()
    }
}

impl From<RecordError> for ApiError {
    fn from(error: RecordError) -> Self {
        let message = error.to_string();
        match error.kind() {
            RecordErrorKind::NotFound => Self::not_found(message),
            RecordErrorKind::Exists | RecordErrorKind::NameTaken | RecordErrorKind::VersionConflict => {
                Self::conflict(message)
            }
            RecordErrorKind::WrongCursor | RecordErrorKind::Invalid => Self::invalid(message),
            _ if error.is_retryable() => Self::overloaded(message, error.retry_after().unwrap_or(RETRY)),
            _ => internal(&message),
        }
    }
}

impl From<VaultError> for ApiError {
    fn from(error: VaultError) -> Self {
        match error {
            VaultError::Records(error) => error.into(),
            // The operator's log has the details.
            VaultError::Sealed { .. } => {
                tracing::error!(%error, "a credential cannot be opened");
                Self::conflict(format!("{error}; delete it and create it again"))
            }
            other => internal(&other),
        }
    }
}

impl From<ApiKeysError> for ApiError {
    fn from(error: ApiKeysError) -> Self {
        match error {
            ApiKeysError::Records(error) => error.into(),
            other => internal(&other),
        }
    }
}

impl From<JournalError> for ApiError {
    fn from(error: JournalError) -> Self {
        if error.is_retryable() {
            Self::overloaded(error.to_string(), error.retry_after().unwrap_or(RETRY))
        } else {
            internal(&error)
        }
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        let message = error.to_string();
        let wait = error.retry_after().unwrap_or(RETRY);
        match error {
            SessionError::NotFound { .. } => Self::not_found(message),
            SessionError::Rejected(_)
            | SessionError::NoSuchCall { .. }
            | SessionError::ModelRefused { .. }
            | SessionError::Unsupported { .. } => Self::invalid(message),
            SessionError::NotRunning => Self::conflict(message),
            SessionError::Quota(_) => Self::rate_limited(message, wait),
            SessionError::Overloaded { .. }
            | SessionError::Draining
            | SessionError::ShuttingDown
            | SessionError::TakenOver { .. } => Self::overloaded(message, wait),
            SessionError::DeadlinePassed => Self::overloaded(message, wait).with_unknown_outcome(),
            SessionError::Artifact(failure) if !failure.error().is_retryable() => Self::invalid(message),
            SessionError::Lost | SessionError::Journal { .. } => internal(&message).with_unknown_outcome(),
            _ => internal(&message),
        }
    }
}

impl From<RuntimeError> for ApiError {
    fn from(error: RuntimeError) -> Self {
        let wait = error.retry_after().unwrap_or(RETRY);
        let retryable = error.is_retryable();
        let message = match error.hint() {
            Some(hint) => format!("{error}; {hint}"),
            None => error.to_string(),
        };
        match error {
            RuntimeError::NotFound { .. } => Self::not_found(message),
            RuntimeError::Session(error) => error.into(),
            RuntimeError::Quota(_) => Self::rate_limited(message, wait),
            RuntimeError::Draining => Self::overloaded(message, wait),
            RuntimeError::UnknownSkills { .. }
            | RuntimeError::UnknownCatalog { .. }
            | RuntimeError::UnknownModel { .. }
            | RuntimeError::UnknownExecutor { .. }
            | RuntimeError::NoModel
            | RuntimeError::Client { .. }
            | RuntimeError::NotHosting { .. }
            | RuntimeError::McpServer { .. }
            | RuntimeError::Network { .. }
            | RuntimeError::PythonPackages { .. }
            | RuntimeError::Inputs { .. } => Self::invalid(message),
            _ if retryable => Self::overloaded(message, wait),
            _ => internal(&message),
        }
    }
}

/// A 500 without details. The log has the cause, and the client can name the request's id.
fn internal(cause: &dyn std::fmt::Display) -> ApiError {
    tracing::error!(%cause, "a request failed");
    ApiError::internal("the server failed; its log has the cause under the id of this request")
}
