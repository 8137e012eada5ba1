//! What a session's artifacts are worked with.

use std::fmt;
use std::sync::Arc;

use conjure_artifact::{ArtifactOptions, Intake, Resolver};
use conjure_conversation::ArtifactContent;
use futures_util::future::BoxFuture;

use crate::supervision::Failure;

/// What a session's artifacts are taken in and found with. A session whose parts have none has no artifacts.
#[derive(Clone)]
pub struct ArtifactParts {
    /// Takes sources in.
    pub intake: Intake,
    /// Finds what references stand for; its store is the session's tenant's, and everything lies there.
    pub resolver: Resolver,
    /// Sees to it that contents stay for as long as the session has them.
    pub keeper: Arc<dyn ContentKeeper>,
}

/// Sees to it that the contents of a session's artifacts stay in their store for as long as the session has them.
pub trait ContentKeeper: Send + Sync {
    /// Keeps these contents, and none that the session had before. Called after each change, and when the session is revived; never
    /// twice at a time for one session. The future may be dropped.
    ///
    /// # Errors
    /// Whatever went wrong; it is logged, and tried again at the next occasion.
    fn keep(&self, contents: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>>;
}

/// The store keeps everything by itself.
impl ContentKeeper for () {
    fn keep(&self, _: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl ArtifactParts {
    /// What the host permits.
    #[must_use]
    pub fn options(&self) -> &ArtifactOptions {
        self.resolver.options()
    }
}

impl fmt::Debug for ArtifactParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtifactParts").field("options", self.options()).finish_non_exhaustive()
    }
}
