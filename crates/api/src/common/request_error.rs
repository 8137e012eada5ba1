//! The reason why a request was refused, as a message for its author.

/// A request that this server refuses. The server responds with status 400 and `invalid_request_error`.
///
/// The message says where in the request the fault is, what is wrong, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", prefix(.path))]
pub struct RequestError {
    path: String,
    message: String,
    code: Option<&'static str>,
}

/// The position as the prefix of a message; empty for the request as a whole.
fn prefix(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

impl RequestError {
    /// Creates an error at `path`, a path such as `tools.0.name`. An empty path means the request as a whole.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), code: None }
    }

    /// Creates the error for a part of the API that this server does not have. `what` names that part.
    pub fn unsupported(path: impl Into<String>, what: &str) -> Self {
        Self::new(path, format!("this server does not support {what}; leave it out"))
    }

    /// The same error with the API's stable code for it.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The API's stable code for this error (`error.details.error_code`).
    #[must_use]
    pub fn code(&self) -> Option<&'static str> {
        self.code
    }
}
