//! [`VaultError`]: why a credential cannot be stored or read.

use std::path::PathBuf;

use conjure_journal::RecordError;

/// Why a credential cannot be stored or read. No message contains a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VaultError {
    /// The text is not a key.
    #[error("the key of vaults must be 64 hex digits; make one with `openssl rand -hex 32`")]
    Key,
    /// The key file cannot be read or created.
    #[error("the key of vaults cannot be read from `{}`: {reason}", path.display())]
    KeyFile {
        /// The path of the key file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The machine returned no random numbers.
    #[error("a credential cannot be sealed: {0}")]
    Entropy(std::io::Error),
    /// The secrets were sealed with another key, or their record was changed.
    #[error(
        "the credential `{id}` cannot be opened: it was sealed with another key, or its record was changed"
    )]
    Sealed {
        /// The id of the credential.
        id: String,
    },
    /// The record has an unexpected form.
    #[error("the record of a credential cannot be read or written: {0}")]
    Record(serde_json::Error),
    /// The URL is not the address of a server.
    #[error("`{url}` is no address of a server; give an absolute URL such as `https://mcp.example.com/mcp`")]
    Address {
        /// The URL.
        url: String,
    },
    /// The record store failed.
    #[error(transparent)]
    Records(#[from] RecordError),
}
