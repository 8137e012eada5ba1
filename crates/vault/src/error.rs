//! [`VaultError`]: why a credential cannot be stored or read.

use std::path::PathBuf;

use conjure_journal::RecordError;

/// Why a credential cannot be stored or read. No message has a secret in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VaultError {
    /// The text is not a key.
    #[error("the key of vaults must be 64 hex digits; make one with `openssl rand -hex 32`")]
    Key,
    /// The file of the key cannot be read or made.
    #[error("the key of vaults cannot be read from `{}`: {reason}", path.display())]
    KeyFile {
        /// Which file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The machine gives no random numbers.
    #[error("a credential cannot be sealed: {0}")]
    Entropy(std::io::Error),
    /// The secrets were sealed with another key, or were changed.
    #[error(
        "the credential `{id}` cannot be opened: it was sealed with another key, or its record was changed"
    )]
    Sealed {
        /// Which credential.
        id: String,
    },
    /// The record has another form.
    #[error("the record of a credential cannot be read or written: {0}")]
    Record(serde_json::Error),
    /// The address is none of a server.
    #[error("`{url}` is no address of a server; give an absolute URL such as `https://mcp.example.com/mcp`")]
    Address {
        /// The address.
        url: String,
    },
    /// The records cannot be asked.
    #[error(transparent)]
    Records(#[from] RecordError),
}
