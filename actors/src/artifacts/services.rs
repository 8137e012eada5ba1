//! What a session's artifacts are worked with.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use conjure_artifact::{ArtifactError, ArtifactIngestor, ArtifactOptions, ReferenceResolver};
use conjure_base::Timestamp;
use conjure_conversation::{ArtifactContent, SessionState};
use conjure_journal::Epoch;
use futures_util::future::BoxFuture;

use crate::session::SessionError;
use crate::supervision::Failure;

/// What a session's artifacts are taken in and found with. A session whose parts have none has no artifacts.
#[derive(Clone)]
pub struct ArtifactServices {
    /// Takes sources in.
    pub ingestor: ArtifactIngestor,
    /// Finds what references stand for; its store is the session's tenant's, and everything lies there.
    pub resolver: ReferenceResolver,
    /// Sees to it that contents stay for as long as the session has them.
    pub pinner: Arc<dyn ContentPinner>,
    /// Says whether there is room for more contents.
    pub quota: Arc<dyn StoreQuota>,
}

/// Says whether a session's tenant may have more in its store. It is asked before a content is stored that the host gives the session, or
/// makes of what the session produced.
pub trait StoreQuota: Send + Sync {
    /// Sets so many bytes aside for a content that is about to be stored: whoever else asks meanwhile finds that much less. The future may
    /// be dropped.
    ///
    /// # Errors
    /// [`SessionError::Quota`] where the tenant has as much as it may, or would have more with these; [`SessionError::UsageUnknown`].
    fn reserve(&self, bytes: u64) -> BoxFuture<'_, Result<SpaceReservation, SessionError>>;
}

/// Room that is set aside, until this is dropped: when the content is stored, or came to nothing.
#[must_use = "dropping it gives the room back"]
pub struct SpaceReservation(
    #[expect(dead_code, reason = "it is there to be dropped")] Option<Box<dyn Any + Send>>,
);

impl SpaceReservation {
    /// Gives the room back by dropping this.
    pub fn with_guard(guard: impl Any + Send) -> Self {
        Self(Some(Box::new(guard)))
    }

    /// Where nobody counts.
    pub const fn unlimited() -> Self {
        Self(None)
    }
}

impl fmt::Debug for SpaceReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetAside").finish_non_exhaustive()
    }
}

/// There is room for everything.
impl StoreQuota for () {
    fn reserve(&self, _: u64) -> BoxFuture<'_, Result<SpaceReservation, SessionError>> {
        Box::pin(std::future::ready(Ok(SpaceReservation::unlimited())))
    }
}

/// Sees to it that the contents of a session's artifacts stay in their store for as long as the session has them.
///
/// Each incarnation of a session says which it is, by the epoch of its lease. Work of an earlier one may still be under way when a later
/// one has begun: it takes nothing from that.
pub trait ContentPinner: Send + Sync {
    /// Keeps this content, too. Called before it is recorded that the session has it. The future may be dropped.
    ///
    /// # Errors
    /// When it cannot be kept, or is not there any more: the session is not given it then.
    fn pin(&self, epoch: Epoch, content: ArtifactContent) -> BoxFuture<'_, Result<(), ArtifactError>>;

    /// Keeps these contents, and none that the session had before. Called when the session is revived, and after changes; never at the same
    /// time as another call for one incarnation, but for one whose future was dropped. The future may be dropped.
    ///
    /// # Errors
    /// Whatever went wrong; it is logged, and tried again at the next occasion.
    fn retain(&self, epoch: Epoch, contents: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>>;
}

/// The store keeps everything by itself.
impl ContentPinner for () {
    fn pin(&self, _: Epoch, _: ArtifactContent) -> BoxFuture<'_, Result<(), ArtifactError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn retain(&self, _: Epoch, _: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl ArtifactServices {
    /// What the host permits.
    #[must_use]
    pub fn options(&self) -> &ArtifactOptions {
        self.resolver.options()
    }
}

impl fmt::Debug for ArtifactServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtifactParts").field("options", self.options()).finish_non_exhaustive()
    }
}

/// Whether a session has artifacts that expired as nobody used it for so long. A turn that runs, or waits for a person, uses it.
#[must_use]
pub fn have_expired(state: &SessionState, options: &ArtifactOptions, now: Timestamp) -> bool {
    let is_used = state.turn().is_some() || state.view().artifacts().is_empty();
    !is_used && options.are_expired(state.last_event_at(), now)
}
