//! What a session's artifacts are worked with.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use conjure_artifact::{ArtifactError, ArtifactOptions, Intake, Resolver};
use conjure_conversation::ArtifactContent;
use conjure_journal::Epoch;
use futures_util::future::BoxFuture;

use crate::session::SessionError;
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
    /// Says whether there is room for more contents.
    pub room: Arc<dyn StoreRoom>,
}

/// Says whether a session's tenant may have more in its store. It is asked before a content is stored that the host gives the session, or
/// makes of what the session produced.
pub trait StoreRoom: Send + Sync {
    /// Sets so many bytes aside for a content that is about to be stored: whoever else asks meanwhile finds that much less. The future may
    /// be dropped.
    ///
    /// # Errors
    /// [`SessionError::Quota`] where the tenant has as much as it may, or would have more with these; [`SessionError::Unmeasured`].
    fn set_aside(&self, bytes: u64) -> BoxFuture<'_, Result<SetAside, SessionError>>;
}

/// Room that is set aside, until this is dropped: when the content is stored, or came to nothing.
#[must_use = "dropping it gives the room back"]
pub struct SetAside(#[expect(dead_code, reason = "it is there to be dropped")] Option<Box<dyn Any + Send>>);

impl SetAside {
    /// Gives the room back by dropping this.
    pub fn held_by(guard: impl Any + Send) -> Self {
        Self(Some(Box::new(guard)))
    }

    /// Where nobody counts.
    pub const fn uncounted() -> Self {
        Self(None)
    }
}

impl fmt::Debug for SetAside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetAside").finish_non_exhaustive()
    }
}

/// There is room for everything.
impl StoreRoom for () {
    fn set_aside(&self, _: u64) -> BoxFuture<'_, Result<SetAside, SessionError>> {
        Box::pin(std::future::ready(Ok(SetAside::uncounted())))
    }
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
