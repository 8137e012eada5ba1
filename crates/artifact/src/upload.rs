//! Giving artifacts to a service that runs skills itself.
//!
//! Its one state is which artifacts could not be given, in memory: after a crash they are tried again.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use conjure_base::Digest;
use conjure_conversation::{Artifact, ArtifactName, ArtifactSource, Block};
use conjure_store::{Store, Verify};
use futures_util::future::BoxFuture;

use crate::blocking::blocking;
use crate::error::{ArtifactError, Retry};

/// What gives a session's artifacts to its model's service, so that hosted skills find them in their containers.
pub trait ArtifactUpload: Send + Sync + std::fmt::Debug {
    /// Uploads an artifact, whose bytes these are. The block that puts it into a container, as a part of what the user says.
    ///
    /// It is asked once for each content of an artifact, and again where nobody recorded that it was done: a host that ended in between
    /// leaves a file with the service that no session names. The future may be dropped.
    ///
    /// # Errors
    /// `TooLarge` above the service's limit, `UploadFailed` when the service does not take them.
    fn upload<'a>(
        &'a self,
        artifact: &'a Artifact,
        bytes: File,
    ) -> BoxFuture<'a, Result<Block, ArtifactError>>;
}

/// The artifacts of one session, on their way to the service. Clones are the same.
#[derive(Debug, Clone)]
pub struct Uploads {
    store: Store,
    service: Arc<dyn ArtifactUpload>,
    failures: Arc<Mutex<BTreeMap<(ArtifactName, Version), Retry>>>,
}

/// What an artifact was when it failed: another one under its name is not to pay for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Content(Digest),
    /// What is to be fetched.
    Url(String),
    Unknown,
}

impl Version {
    fn of(artifact: &Artifact) -> Self {
        match (&artifact.content, &artifact.source) {
            (Some(content), _) => Self::Content(content.digest),
            (None, ArtifactSource::Url { url }) => Self::Url(url.clone()),
            (None, _) => Self::Unknown,
        }
    }
}

impl Uploads {
    /// Of the artifacts whose bytes are in this store, to this service.
    #[must_use]
    pub fn new(store: Store, service: Arc<dyn ArtifactUpload>) -> Self {
        Self { store, service, failures: Arc::default() }
    }

    /// Whether an artifact has failed as it is ([`Uploads::note_failure`]), and whether trying again may help.
    #[must_use]
    pub fn failure(&self, artifact: &Artifact) -> Option<Retry> {
        let key = (artifact.name.clone(), Version::of(artifact));
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied()
    }

    /// Remembers that an artifact, as it is, could not be given: this content, or nothing of where it is to be fetched.
    pub fn note_failure(&self, artifact: &Artifact, retry: Retry) {
        let key = (artifact.name.clone(), Version::of(artifact));
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).insert(key, retry);
    }

    /// Gives one artifact to the service. Its bytes are compared with their digest before: what a service was given once, nobody takes back.
    ///
    /// # Errors
    /// As for [`ArtifactUpload::upload`]; `Store` when its bytes are not in the store, or not what they were; `Unsupported` when they are
    /// not known yet.
    pub async fn upload(&self, artifact: &Artifact) -> Result<Block, ArtifactError> {
        let Some(content) = &artifact.content else {
            let message = format!("the URL of the artifact `{}` was not fetched yet", artifact.name);
            return Err(ArtifactError::Unsupported(message));
        };
        let (store, digest) = (self.store.clone(), content.digest);
        let opened = blocking(move || store.get(&digest, Verify::Yes)).await??;
        self.service.upload(artifact, opened.into_file()).await
    }
}
