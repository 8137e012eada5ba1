//! [`HttpConfigError`]: why the configuration of a client is invalid.

/// Why a configuration is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpConfigError {
    /// The key cannot be sent in a header.
    #[error("the API key {reason}; check how it was copied")]
    Key {
        /// What is wrong with it. The key is not shown.
        reason: &'static str,
    },
    /// The base URL is invalid.
    #[error("the base URL `{url}` cannot be used: {reason}")]
    BaseUrl {
        /// The URL, without user name, password and query.
        url: String,
        /// What is wrong, and how to mend it.
        reason: String,
    },
    /// A header cannot be sent.
    #[error("the header `{name}` cannot be sent: {reason}")]
    Header {
        /// Its name.
        name: String,
        /// What is wrong, and how to mend it. The value is not shown.
        reason: &'static str,
    },
    /// The proxy URL is invalid. It is not shown, because it may hold a password.
    #[error("the proxy's address cannot be used; write `http://HOST:PORT`")]
    Proxy,
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {reason}")]
    Tls {
        /// The reason.
        reason: String,
    },
}

/// Shortens a name for messages and removes control characters, because a user may have written a value in place of the name.
pub(super) fn printable(name: &str) -> String {
    name.chars().filter(|character| !character.is_control()).take(60).collect()
}
