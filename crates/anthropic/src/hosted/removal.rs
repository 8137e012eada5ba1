//! Deleting the files of sessions that are deleted: what was uploaded for them, and what the service's tools made.
//!
//! It keeps no state: which they are stands in the session's record.

use conjure_artifact::{FileRemoval, RemovalError, Removed, ServiceAccount};
use conjure_conversation::Block;
use futures_util::future::BoxFuture;

use crate::hosted::file_ids::{produced_files, uploaded_file};
use crate::hosted::sync::Account;
use crate::hosted::{FileId, Files, HostedError, HostedErrorKind};

/// Deletes files of sessions under one key.
///
/// Whoever names a file that is another session's has it deleted all the same, if it is the key's: the session's record is what says which
/// are its own.
#[derive(Debug, Clone)]
pub struct HostedRemoval(Files);

impl HostedRemoval {
    /// Of those that this client reaches.
    #[must_use]
    pub const fn new(files: Files) -> Self {
        Self(files)
    }
}

impl FileRemoval for HostedRemoval {
    fn account(&self) -> ServiceAccount {
        let Account { service, key } = self.0.account();
        ServiceAccount { service, key }
    }

    fn given(&self, block: &Block) -> Option<String> {
        uploaded_file(block).map(|id| id.as_str().to_owned())
    }

    fn made(&self, answer: &[Block]) -> Vec<String> {
        produced_files(answer).iter().map(|id| id.as_str().to_owned()).collect()
    }

    fn remove<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Removed, RemovalError>> {
        Box::pin(async move {
            use HostedErrorKind as Kind;
            let Err(error) = self.0.delete(&FileId::new(id)).await else { return Ok(Removed::Deleted) };
            let reason = error.to_string();
            Err(match error.kind() {
                Kind::NotFound => return Ok(Removed::Absent),
                Kind::WrongKey => RemovalError::KeyRefused { reason },
                Kind::Forbidden | Kind::Refused | Kind::InvalidId => RemovalError::Refused { reason },
                Kind::RateLimited | Kind::Connection | Kind::Timeout => RemovalError::Unreachable { reason },
                Kind::Service if is_overloaded(&error) => RemovalError::Unreachable { reason },
                _ => RemovalError::Failed { reason },
            })
        })
    }
}

/// Whether the service has too much to do for anything; else it fails of this file alone, as far as is known.
fn is_overloaded(error: &HostedError) -> bool {
    matches!(error.status_code(), Some(503 | 529))
}
