//! Deleting what lies at a model's service for sessions that are deleted: what they gave it, and what was made for them.
//!
//! It keeps no state: which files a session has there stands in its record.

use conjure_base::Digest;
use conjure_conversation::Block;
use futures_util::future::BoxFuture;

/// Whose the files are at a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    /// The service, such as by its address. Ids of files are unique within it.
    pub service: String,
    /// Tells the keys of a service apart, and tells nobody a key: it is put down on the disk.
    pub key: Digest,
}

/// What deletes a session's files at its model's service.
pub trait FileRemoval: Send + Sync + std::fmt::Debug {
    /// Under which key it deletes, and where.
    fn account(&self) -> ServiceAccount;

    /// The id of the file that this block puts into a container, which [`crate::ArtifactUpload::upload`] has made.
    fn given(&self, block: &Block) -> Option<String>;

    /// The ids of the files that an answer of these blocks says were made.
    fn made(&self, answer: &[Block]) -> Vec<String>;

    /// Deletes the file of this id. It may be asked again for the same one, and the future be dropped.
    ///
    /// # Errors
    /// [`RemovalError`]: nobody knows then whether it is there.
    fn remove<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Removed, RemovalError>>;
}

/// What became of a file that was to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// It was there, and is not any more.
    Deleted,
    /// There is none of this id, as far as this key goes.
    Absent,
}

/// Why a file was not deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemovalError {
    /// The service is not to be reached, does not answer in time, or has too much to do: that passes. Others would only wait as well.
    #[error("{reason}")]
    Unreachable {
        /// What happened.
        reason: String,
    },
    /// The service answered, and did not delete this one now: that may pass. It says nothing of others.
    #[error("{reason}")]
    Failed {
        /// What happened.
        reason: String,
    },
    /// The service does not know the key. All others of it would be refused as well.
    #[error("{reason}")]
    KeyRefused {
        /// What the service said.
        reason: String,
    },
    /// The service does not delete this one, or not under this key. It says nothing of others.
    #[error("{reason}")]
    Refused {
        /// What the service said.
        reason: String,
    },
}
