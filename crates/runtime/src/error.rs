//! The error of the facade's functions: the eleven kinds of specification 12.1.
//!
//! Each crate has an error of its own, with more detail. Failures of a tool that the model should read are not errors
//! but results with `is_error` (12.2).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_conversation::{ApiErrorKind, LoopError, ModelError, ModelErrorKind, ParseError};
use conjure_prompt::ParseToolUseError;
use conjure_sandbox::{SandboxError, SandboxErrorKind};
use conjure_skill::SkillError;
use conjure_toolbox::ToolboxError;

/// The eleven kinds of error (specification 12.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No skill has this name.
    SkillNotFound,
    /// The frontmatter of a `SKILL.md` is missing or invalid.
    InvalidFrontmatter,
    /// A skill's directory is not valid.
    InvalidSkillStructure,
    /// A file or directory does not exist.
    FileNotFound,
    /// A file or directory cannot be accessed.
    PermissionDenied,
    /// A command failed.
    ExecutionFailed,
    /// A command, a tool call or a whole run took too long.
    ExecutionTimeout,
    /// No container engine is available.
    DockerUnavailable,
    /// A sandbox could not be created, or was lost.
    ContainerError,
    /// The model's service, or the embedder's own client for it, failed.
    ApiError,
    /// The model was called as often as allowed and had not finished.
    MaxIterationsReached,
}

impl ErrorKind {
    /// The kind's name in the specification, such as `skill_not_found`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SkillNotFound => "skill_not_found",
            Self::InvalidFrontmatter => "invalid_frontmatter",
            Self::InvalidSkillStructure => "invalid_skill_structure",
            Self::FileNotFound => "file_not_found",
            Self::PermissionDenied => "permission_denied",
            Self::ExecutionFailed => "execution_failed",
            Self::ExecutionTimeout => "execution_timeout",
            Self::DockerUnavailable => "docker_unavailable",
            Self::ContainerError => "container_error",
            Self::ApiError => "api_error",
            Self::MaxIterationsReached => "max_iterations_reached",
        }
    }
}

impl std::fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error of a function of this crate. The message says what failed, where, and why. [`Error::hint`] says what the user
/// can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No skill has this name.
    #[error("skill `{name}` not found")]
    SkillNotFound {
        /// The requested name.
        name: String,
        /// The existing names.
        available: Vec<String>,
    },
    /// The frontmatter of a `SKILL.md` is missing or invalid.
    #[error("{reason}")]
    InvalidFrontmatter {
        /// The `SKILL.md`.
        path: PathBuf,
        /// What is wrong with it, and where.
        reason: String,
        /// The error of the skill crate, with all findings.
        source: Option<Box<SkillError>>,
    },
    /// A skill's directory is not valid.
    #[error("{reason}")]
    InvalidSkillStructure {
        /// The directory, or the invalid file in it.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// The error of the skill crate.
        source: Option<Box<SkillError>>,
    },
    /// A file or directory does not exist.
    #[error("{reason}")]
    FileNotFound {
        /// The missing path.
        path: PathBuf,
        /// Why it is needed.
        reason: String,
    },
    /// A file or directory cannot be accessed.
    #[error("{reason}")]
    PermissionDenied {
        /// The path.
        path: PathBuf,
        /// What refused the access, and why.
        reason: String,
    },
    /// A command failed, or a tool call was invalid.
    #[error("{reason}")]
    ExecutionFailed {
        /// The command or call.
        command: String,
        /// Its exit code, if it ran and exited.
        exit_code: Option<i32>,
        /// Its output: the beginning and the end.
        output: String,
        /// What happened, as text for people.
        reason: String,
    },
    /// Something took too long and was ended.
    #[error("{reason}")]
    ExecutionTimeout {
        /// What took too long.
        reason: String,
    },
    /// No container engine is available.
    #[error("no container engine: {reason}")]
    DockerUnavailable {
        /// The addresses that were tried, and what happened.
        reason: String,
    },
    /// A sandbox could not be created, or was lost.
    #[error("{message}")]
    Container {
        /// What happened.
        message: String,
        /// The sandbox's own error, if there is one.
        source: Option<SandboxError>,
    },
    /// The model's service, or the embedder's own client for it, failed.
    #[error("the model failed: {0}{request}", request = request_suffix(.0))]
    Api(#[from] ModelError),
    /// The model was called as often as allowed and had not finished.
    #[error("the model was called {iterations} {} and is not done", if *iterations == 1 { "time" } else { "times" })]
    MaxIterationsReached {
        /// How often it was called.
        iterations: u32,
    },
}

impl Error {
    /// The kind of the error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::SkillNotFound { .. } => ErrorKind::SkillNotFound,
            Self::InvalidFrontmatter { .. } => ErrorKind::InvalidFrontmatter,
            Self::InvalidSkillStructure { .. } => ErrorKind::InvalidSkillStructure,
            Self::FileNotFound { .. } => ErrorKind::FileNotFound,
            Self::PermissionDenied { .. } => ErrorKind::PermissionDenied,
            Self::ExecutionFailed { .. } => ErrorKind::ExecutionFailed,
            Self::ExecutionTimeout { .. } => ErrorKind::ExecutionTimeout,
            Self::DockerUnavailable { .. } => ErrorKind::DockerUnavailable,
            Self::Container { .. } => ErrorKind::ContainerError,
            Self::Api(_) => ErrorKind::ApiError,
            Self::MaxIterationsReached { .. } => ErrorKind::MaxIterationsReached,
        }
    }

    /// Whether the same call may succeed later without any change.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Api(error) => error.is_retryable(),
            Self::Container { source, .. } => source.as_ref().is_some_and(SandboxError::is_retryable),
            Self::ExecutionTimeout { .. } | Self::DockerUnavailable { .. } => true,
            _ => false,
        }
    }

    /// How long to wait before another attempt, if the service or an admission gate said so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Api(error) => error.retry_after,
            Self::Container { source, .. } => source.as_ref()?.retry_after(),
            _ => None,
        }
    }

    /// What the user can do about it, if that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::SkillNotFound { available, .. } if available.is_empty() => {
                "no skills are loaded".to_owned()
            }
            Self::SkillNotFound { available, .. } => format!("there are {}", available.join(", ")),
            Self::InvalidFrontmatter { .. } | Self::InvalidSkillStructure { .. } => {
                "`conjure skills validate PATH` lists everything that is wrong with a skill".to_owned()
            }
            Self::ExecutionTimeout { .. } => "raise the timeout, or split the work".to_owned(),
            Self::DockerUnavailable { .. } => "`conjure doctor` says what this machine offers".to_owned(),
            Self::Api(error) => hint_of(&error.kind)?.to_owned(),
            Self::MaxIterationsReached { .. } => {
                "raise `max_iterations` (`--max-turns`), or ask for less at once".to_owned()
            }
            _ => return None,
        })
    }

    /// An I/O error at `path`.
    pub(crate) fn io(path: &Path, error: &io::Error) -> Self {
        Self::from_io(path, format!("`{}`", path.display()), error)
    }

    /// An I/O error at `path`. `what` describes the file to the user.
    pub(crate) fn io_of(what: &str, path: &Path, error: &io::Error) -> Self {
        Self::from_io(path, format!("{what} `{}`", path.display()), error)
    }

    fn from_io(path: &Path, what: String, error: &io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::NotFound => format!("{what} does not exist"),
            _ => format!("{what} cannot be used: {error}"),
        };
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound => Self::FileNotFound { path, reason },
            _ => Self::PermissionDenied { path, reason },
        }
    }
}

/// The request id, which the service's support needs.
fn request_suffix(error: &ModelError) -> String {
    error.request_id.as_ref().map_or_else(String::new, |id| format!(" (request id: {id})"))
}

fn hint_of(kind: &ModelErrorKind) -> Option<&'static str> {
    Some(match kind {
        ModelErrorKind::Api(kind) => match kind {
            ApiErrorKind::Authentication => {
                "check the key: it must be whole, not revoked, and of the service at this base URL"
            }
            ApiErrorKind::NotFound => "check the model's name, and the base URL",
            ApiErrorKind::Permission => "the key is good, but it may not do this; ask whoever gave it out",
            ApiErrorKind::Billing => "the account cannot pay for the call; see the service's console",
            ApiErrorKind::RateLimit => "wait, or ask less often; the limit is one of the key",
            ApiErrorKind::Overloaded | ApiErrorKind::Api | ApiErrorKind::Timeout => {
                "the service has trouble: try again later"
            }
            ApiErrorKind::InvalidRequest | ApiErrorKind::Unknown(_) => return None,
        },
        ModelErrorKind::Truncated => "what came before the cut is no answer; try again",
        ModelErrorKind::Timeout => {
            "the service may be slow: try again, or raise `model_timeout` (`CONJURE_MODEL_TIMEOUT`)"
        }
        ModelErrorKind::Overloaded => {
            "the tenant or the host has too many calls under way: try again later, or raise what is allowed at a time"
        }
        ModelErrorKind::Exhausted(_) => "raise the budget of the tenant, or wait until its period is over",
        _ => return None,
    })
}

impl From<SkillError> for Error {
    fn from(error: SkillError) -> Self {
        let path = error.path().to_owned();
        let reason = match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        match &error {
            SkillError::NotFound { .. } | SkillError::FileNotFound { .. } => {
                Self::FileNotFound { path, reason }
            }
            SkillError::InvalidFrontmatter { .. } => {
                Self::InvalidFrontmatter { path, reason, source: Some(Box::new(error)) }
            }
            SkillError::InvalidStructure { .. }
            | SkillError::InvalidPackage { .. }
            | SkillError::PackageBudget { .. }
            | SkillError::TooLarge { .. } => {
                Self::InvalidSkillStructure { path, reason, source: Some(Box::new(error)) }
            }
            _ => Self::PermissionDenied { path, reason },
        }
    }
}

/// A conversation could not run, because its messages are invalid or its event log failed.
impl From<LoopError> for Error {
    fn from(error: LoopError) -> Self {
        let kind = match &error {
            LoopError::Messages(_) => ModelErrorKind::Api(ApiErrorKind::InvalidRequest),
            _ => ModelErrorKind::Protocol,
        };
        Self::Api(ModelError::new(kind, error.to_string()))
    }
}

/// The embedder's client received data that is not a response.
impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        Self::Api(ModelError::new(ModelErrorKind::Protocol, error.to_string()))
    }
}

/// The value is not a tool call.
impl From<ParseToolUseError> for Error {
    fn from(error: ParseToolUseError) -> Self {
        Self::Api(ModelError::new(ModelErrorKind::Protocol, error.to_string()))
    }
}

/// The service would refuse the tool definitions.
impl From<ToolboxError> for Error {
    fn from(error: ToolboxError) -> Self {
        Self::Api(ModelError::new(ModelErrorKind::Api(ApiErrorKind::InvalidRequest), error.to_string()))
    }
}

impl From<SandboxError> for Error {
    fn from(error: SandboxError) -> Self {
        let message = error.to_string();
        match error.kind() {
            SandboxErrorKind::EngineUnavailable => Self::DockerUnavailable {
                reason: message.trim_start_matches("no container engine can be used: ").to_owned(),
            },
            SandboxErrorKind::TimedOut => Self::ExecutionTimeout { reason: message },
            SandboxErrorKind::Lost
            | SandboxErrorKind::Unavailable
            | SandboxErrorKind::ImageNotFound
            | SandboxErrorKind::NotEnforced
            | SandboxErrorKind::Exhausted
            | SandboxErrorKind::Overloaded
            | SandboxErrorKind::Unsupported => Self::Container { message, source: Some(error) },
            _ => Self::ExecutionFailed {
                command: String::new(),
                exit_code: None,
                output: String::new(),
                reason: message,
            },
        }
    }
}

#[cfg(test)]
mod tests;
