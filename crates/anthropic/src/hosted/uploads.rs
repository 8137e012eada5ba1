//! The artifacts of a session, given to the service: uploaded as files, and put into a container by a block of the user's message.
//!
//! It keeps no state: which were given stands in the session's record.

use std::fs::File;

use conjure_artifact::{ArtifactError, ArtifactUpload, Retry};
use conjure_conversation::{Artifact, Block};
use futures_util::future::BoxFuture;

use crate::hosted::{FileUpload, Files, HostedErrorKind, container_upload};

/// The artifacts of sessions under one key.
#[derive(Debug, Clone)]
pub struct HostedUploads(Files);

impl HostedUploads {
    /// Those that this client uploads.
    #[must_use]
    pub const fn new(files: Files) -> Self {
        Self(files)
    }
}

impl ArtifactUpload for HostedUploads {
    fn upload<'a>(
        &'a self,
        artifact: &'a Artifact,
        bytes: File,
    ) -> BoxFuture<'a, Result<Block, ArtifactError>> {
        Box::pin(async move {
            let upload = FileUpload::of_file(artifact.name.as_str(), bytes)
                .with_media_type(artifact.content_type.as_str());
            let name = || artifact.name.clone();
            let record = self.0.upload(upload).await.map_err(|error| match error.kind() {
                HostedErrorKind::OverLimit => ArtifactError::TooLarge {
                    what: format!("the artifact `{}`", artifact.name),
                    limit: self.0.limits().file_bytes,
                },
                _ => {
                    // Where the service may have the file, a second one costs no more than a file that nobody names.
                    let may_help = error.is_retryable() || error.may_have_happened();
                    let retry = if may_help { Retry::MayHelp } else { Retry::Useless };
                    ArtifactError::UploadFailed { name: name(), reason: error.to_string(), retry }
                }
            })?;
            Block::from_json(container_upload(&record.id).to_string()).map_err(|error| {
                let reason = format!("the service's id of the file cannot be sent: {error}");
                ArtifactError::UploadFailed { name: name(), reason, retry: Retry::Useless }
            })
        })
    }
}
