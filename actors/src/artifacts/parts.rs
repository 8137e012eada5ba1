//! What a session's artifacts are worked with.

use std::fmt;
use std::sync::Arc;

use conjure_artifact::{ArtifactError, ArtifactOptions, Intake, Resolver};
use conjure_conversation::ArtifactContent;
use conjure_journal::Epoch;
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
///
/// Each incarnation of a session says which it is, by the epoch of its lease. Work of an earlier one may still be under way when a later
/// one has begun: it takes nothing from that.
pub trait ContentKeeper: Send + Sync {
    /// Keeps this content, too. Called before it is recorded that the session has it. The future may be dropped.
    ///
    /// # Errors
    /// When it cannot be kept, or is not there any more: the session is not given it then.
    fn hold(&self, epoch: Epoch, content: ArtifactContent) -> BoxFuture<'_, Result<(), ArtifactError>>;

    /// Keeps these contents, and none that the session had before. Called when the session is revived, and after changes; never at the same
    /// time as another call for one incarnation, but for one whose future was dropped. The future may be dropped.
    ///
    /// # Errors
    /// Whatever went wrong; it is logged, and tried again at the next occasion.
    fn keep(&self, epoch: Epoch, contents: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>>;
}

/// The store keeps everything by itself.
impl ContentKeeper for () {
    fn hold(&self, _: Epoch, _: ArtifactContent) -> BoxFuture<'_, Result<(), ArtifactError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn keep(&self, _: Epoch, _: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>> {
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
