//! The errors of the Skills and Files APIs. No error shows the key.

use std::path::Path;
use std::time::Duration;

use conjure_conversation::ModelErrorKind;
use conjure_model_http::ServiceError;
use conjure_model_http::service_requests::AttemptError;
use conjure_skill::{PackageProblemKind, SkillError};

/// A failure of [`Skills`](crate::hosted::Skills) or [`Files`](crate::hosted::Files).
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct HostedError {
    kind: HostedErrorKind,
    message: String,
    status: Option<u16>,
    code: Option<String>,
    retry_after: Option<Duration>,
    request_id: Option<String>,
    outcome: Outcome,
    source: Option<Box<SkillError>>,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HostedErrorKind {
    /// 401: the service does not know the key.
    WrongKey,
    /// 403: the key does not permit this.
    Forbidden,
    /// 404: there is no such skill, version or file.
    NotFound,
    /// 409: another call is changing it.
    Conflict,
    /// 413: it is too large for the service.
    TooLarge,
    /// 429: too many calls under this key.
    RateLimited,
    /// Another refusal. The message contains the service's reason.
    Refused,
    /// 5xx: the service failed or is overloaded.
    Service,
    /// There was no connection, or it broke before the response began.
    Connection,
    /// The response ended or broke before it was complete.
    Cut,
    /// A deadline passed.
    Timeout,
    /// The response violates the protocol.
    Protocol,
    /// A limit of this client was exceeded. Nothing was sent, or reading stopped.
    OverLimit,
    /// The skill to upload is invalid or cannot be read. Nothing was sent.
    InvalidSkill,
    /// A local file cannot be read, or changed while it was sent.
    Unreadable,
    /// The id is not valid in a path. Nothing was sent.
    InvalidId,
}

/// Whether the request may have been carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It was not carried out.
    NotCarriedOut,
    /// Unknown: the request may have arrived, but there was no response.
    Unknown,
}

impl HostedError {
    pub(crate) fn new(kind: HostedErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            status: None,
            code: None,
            retry_after: None,
            request_id: None,
            outcome: Outcome::NotCarriedOut,
            source: None,
        }
    }

    /// Builds the error for an error response of the service.
    pub(crate) fn status(status: u16, said: ServiceError, retry_after: Option<Duration>) -> Self {
        let kind = match status {
            401 => HostedErrorKind::WrongKey,
            403 => HostedErrorKind::Forbidden,
            404 => HostedErrorKind::NotFound,
            409 => HostedErrorKind::Conflict,
            413 => HostedErrorKind::TooLarge,
            429 => HostedErrorKind::RateLimited,
            500..=599 => HostedErrorKind::Service,
            408 => HostedErrorKind::Timeout,
            _ => HostedErrorKind::Refused,
        };
        let name = String::from(said.kind);
        let hint = match kind {
            HostedErrorKind::WrongKey => "; check the key and which service it is for",
            HostedErrorKind::Forbidden => "; ask for the right, or use another key",
            _ => "",
        };
        Self {
            status: Some(status),
            code: said.code,
            retry_after,
            request_id: said.request_id,
            ..Self::new(kind, format!("the service answered {status} ({name}): {}{hint}", said.message))
        }
    }

    /// Builds the error for a failed connection.
    pub(crate) fn from_attempt(failure: AttemptError) -> Self {
        let AttemptError { error, .. } = failure;
        let kind = match error.kind {
            ModelErrorKind::Connection => HostedErrorKind::Connection,
            ModelErrorKind::Truncated => HostedErrorKind::Cut,
            ModelErrorKind::Timeout => HostedErrorKind::Timeout,
            ModelErrorKind::Api(_) => HostedErrorKind::RateLimited,
            _ => HostedErrorKind::Protocol,
        };
        Self {
            retry_after: error.retry_after,
            request_id: error.request_id,
            ..Self::new(kind, error.message)
        }
    }

    /// Builds the error for an invalid skill.
    pub(crate) fn from_skill(error: SkillError) -> Self {
        let is_limit = match &error {
            SkillError::TooLarge { .. } => true,
            SkillError::InvalidPackage { problem, .. } => problem.kind() == PackageProblemKind::Limit,
            _ => false,
        };
        let kind = if is_limit { HostedErrorKind::OverLimit } else { HostedErrorKind::InvalidSkill };
        let message = format!("the skill cannot be uploaded: {error}");
        Self { source: Some(Box::new(error)), ..Self::new(kind, message) }
    }

    /// Builds the error for a local file that cannot be read.
    pub(crate) fn unreadable(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::new(HostedErrorKind::Unreadable, format!("cannot read `{}`: {reason}", path.display()))
    }

    /// The same error for a request that the service may have carried out.
    pub(crate) fn with_unknown_outcome(mut self) -> Self {
        self.outcome = Outcome::Unknown;
        self
    }

    pub(crate) fn with_request_id(mut self, id: Option<String>) -> Self {
        self.request_id = self.request_id.or(id);
        self
    }

    pub(crate) fn with_retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> HostedErrorKind {
        self.kind
    }

    /// The HTTP status, if the service responded.
    #[must_use]
    pub const fn status_code(&self) -> Option<u16> {
        self.status
    }

    /// The service's own error code (such as `file_expired`), if there is one.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// How long to wait, if the service said so.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The `request-id` of the service, for support.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// Whether the service may have carried out the request in spite of the error. An example is an upload whose response was lost. List
    /// the existing items before you send the request again.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        self.outcome == Outcome::Unknown
    }

    /// Whether the same call may succeed later and is safe to repeat.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        use HostedErrorKind as Kind;
        let passes = matches!(
            self.kind,
            Kind::RateLimited | Kind::Service | Kind::Connection | Kind::Cut | Kind::Timeout | Kind::Conflict
        );
        passes && self.outcome == Outcome::NotCarriedOut
    }
}
