//! The files of a model's service, in both directions. It owns nothing.

use std::sync::Arc;

use conjure_conversation::HostedFiles;

use crate::output::OutputStore;
use crate::removal::FileRemoval;
use crate::upload::ArtifactUpload;

/// Where a service that runs skills takes files, and where those lie that were made in its containers. A model says so
/// ([`conjure_conversation::Model::hosted_files`]).
#[derive(Debug, Clone)]
pub struct ServiceFiles {
    /// What was made.
    pub outputs: Arc<dyn OutputStore>,
    /// What it is given.
    pub uploads: Arc<dyn ArtifactUpload>,
    /// What deletes both, with the session.
    pub removal: Arc<dyn FileRemoval>,
}

impl From<ServiceFiles> for HostedFiles {
    fn from(files: ServiceFiles) -> Self {
        Self::There(Arc::new(files))
    }
}
