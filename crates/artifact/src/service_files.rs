//! The three ports to the files at a model's service: outputs, uploads and deletion.
//!
//! The session's event log says which files a session has at the service. Here only failed uploads are remembered, in memory:
//! after a crash they are tried again.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex};

use conjure_base::{Digest, lock};
use conjure_conversation::{Artifact, ArtifactName, ArtifactSource, Block, HostedFiles};
use conjure_fs::run_blocking;
use conjure_store::{Store, Verify};
use futures_util::future::BoxFuture;

use crate::error::{ArtifactError, Retryable};
use crate::output::OutputStore;

/// The three ports to the files at a service that runs skills itself. A model returns them from
/// [`conjure_conversation::Model::hosted_files`].
#[derive(Debug, Clone)]
pub struct ServiceFiles {
    /// Reads the files that the service's tools produced.
    pub outputs: Arc<dyn OutputStore>,
    /// Uploads the session's artifacts.
    pub uploads: Arc<dyn ArtifactUpload>,
    /// Deletes uploaded and produced files when the session is deleted.
    pub deletion: Arc<dyn ServiceFileDeletion>,
}

impl From<ServiceFiles> for HostedFiles {
    fn from(files: ServiceFiles) -> Self {
        Self::Available(Arc::new(files))
    }
}

/// Uploads a session's artifacts to its model's service, so that hosted skills find them in their containers.
pub trait ArtifactUpload: Send + Sync + std::fmt::Debug {
    /// Uploads an artifact with these bytes. Returns the content block that puts it into a container, for a user message.
    ///
    /// It is called once for each content of an artifact, and again when the upload was not recorded. A process that ends between
    /// upload and record leaves a file at the service that no session names. The future may be dropped.
    ///
    /// # Errors
    /// `TooLarge` above the service's limit, `UploadFailed` when the service does not accept it.
    fn upload<'a>(
        &'a self,
        artifact: &'a Artifact,
        bytes: File,
    ) -> BoxFuture<'a, Result<Block, ArtifactError>>;
}

/// Uploads the artifacts of one session and remembers which uploads failed. Clones share that state.
#[derive(Debug, Clone)]
pub struct ArtifactUploader {
    store: Store,
    service: Arc<dyn ArtifactUpload>,
    failures: Arc<Mutex<BTreeMap<(ArtifactName, ArtifactVersion), Retryable>>>,
}

/// Identifies what failed: a new artifact under the same name may be tried again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ArtifactVersion {
    Content(Digest),
    /// A URL that was not fetched yet.
    Url(String),
    Unknown,
}

impl ArtifactVersion {
    fn from_artifact(artifact: &Artifact) -> Self {
        match (&artifact.content, &artifact.source) {
            (Some(content), _) => Self::Content(content.digest),
            (None, ArtifactSource::Url { url }) => Self::Url(url.clone()),
            (None, _) => Self::Unknown,
        }
    }
}

impl ArtifactUploader {
    /// Creates an uploader for artifacts whose bytes are in `store`.
    #[must_use]
    pub fn new(store: Store, service: Arc<dyn ArtifactUpload>) -> Self {
        Self { store, service, failures: Arc::default() }
    }

    /// The recorded failure of this artifact version, and whether a retry may help ([`ArtifactUploader::record_failure`]).
    #[must_use]
    pub fn failure(&self, artifact: &Artifact) -> Option<Retryable> {
        let key = (artifact.name.clone(), ArtifactVersion::from_artifact(artifact));
        lock(&self.failures).get(&key).copied()
    }

    /// Records that this version of an artifact could not be uploaded.
    pub fn record_failure(&self, artifact: &Artifact, retry: Retryable) {
        let key = (artifact.name.clone(), ArtifactVersion::from_artifact(artifact));
        lock(&self.failures).insert(key, retry);
    }

    /// Uploads one artifact. Its bytes are verified against their digest first, because an upload cannot be taken back.
    ///
    /// # Errors
    /// As for [`ArtifactUpload::upload`]; `Store` when its bytes are missing or damaged; `Unsupported` when the
    /// artifact's URL was not fetched yet.
    pub async fn upload(&self, artifact: &Artifact) -> Result<Block, ArtifactError> {
        let Some(content) = &artifact.content else {
            let message = format!("the URL of the artifact `{}` was not fetched yet", artifact.name);
            return Err(ArtifactError::Unsupported(message));
        };
        let (store, digest) = (self.store.clone(), content.digest);
        let opened = run_blocking(move || store.get(&digest, Verify::Yes)).await??;
        self.service.upload(artifact, opened.into_file()).await
    }
}

/// The account at a service that owns the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    /// The service, for example its address. File ids are unique within it.
    pub service: String,
    /// A digest that tells API keys apart without revealing them. It is stored on disk.
    pub key: Digest,
}

/// Deletes a session's files at its model's service.
pub trait ServiceFileDeletion: Send + Sync + std::fmt::Debug {
    /// The account under which files are deleted.
    fn account(&self) -> ServiceAccount;

    /// The id of the uploaded file that this block puts into a container. [`ArtifactUpload::upload`] made the block.
    fn uploaded_id(&self, block: &Block) -> Option<String>;

    /// The ids of the files that a response with these blocks says were produced.
    fn produced_ids(&self, answer: &[Block]) -> Vec<String>;

    /// Deletes one file. It may be called again for the same id. The future may be dropped.
    ///
    /// # Errors
    /// [`DeleteError`]. The file may or may not exist then.
    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<DeleteOutcome, DeleteError>>;
}

/// The result of deleting a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The file existed and was deleted.
    Deleted,
    /// No file with this id exists under this key.
    Absent,
}

/// Why a file was not deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeleteError {
    /// The service cannot be reached, did not answer in time, or is overloaded. It affects all files; retry later.
    #[error("{reason}")]
    Unreachable {
        /// What happened.
        reason: String,
    },
    /// The service answered and did not delete this file. A retry may help; other files are not affected.
    #[error("{reason}")]
    Failed {
        /// What happened.
        reason: String,
    },
    /// The service rejected the API key. It would refuse all files of this key.
    #[error("{reason}")]
    KeyRefused {
        /// The service's message.
        reason: String,
    },
    /// The service refuses to delete this file. Other files are not affected.
    #[error("{reason}")]
    Refused {
        /// The service's message.
        reason: String,
    },
}
