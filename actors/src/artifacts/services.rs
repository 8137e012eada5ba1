//! The services behind a session's artifacts.

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

/// The services that ingest and resolve a session's artifacts. A session without these services has no artifacts.
#[derive(Clone)]
pub struct ArtifactServices {
    /// Ingests sources.
    pub ingestor: ArtifactIngestor,
    /// Resolves references. Its store is the store of the session's tenant.
    pub resolver: ReferenceResolver,
    /// Keeps contents alive while the session has them.
    pub pinner: Arc<dyn ContentPinner>,
    /// Checks the tenant's disk quota.
    pub quota: Arc<dyn StoreQuota>,
}

/// Decides whether a session's tenant may store more. The registry asks before it stores a content for an artifact.
pub trait StoreQuota: Send + Sync {
    /// Reserves this many bytes for a content that is about to be stored. Other reservations find that much less space. Cancel
    /// safe.
    ///
    /// # Errors
    /// [`SessionError::Quota`] if the tenant's quota is used up, or would be exceeded; [`SessionError::UsageUnknown`].
    fn reserve(&self, bytes: u64) -> BoxFuture<'_, Result<SpaceReservation, SessionError>>;
}

/// Reserved disk space. It is released when this is dropped: after the content was stored, or after it failed.
#[must_use = "dropping it releases the reserved space"]
pub struct SpaceReservation(
    #[expect(dead_code, reason = "it is there to be dropped")] Option<Box<dyn Any + Send>>,
);

impl SpaceReservation {
    /// A reservation that is released by dropping `guard`.
    pub fn with_guard(guard: impl Any + Send) -> Self {
        Self(Some(Box::new(guard)))
    }

    /// A reservation without accounting, for a store without a quota.
    pub const fn unlimited() -> Self {
        Self(None)
    }
}

impl fmt::Debug for SpaceReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceReservation").finish_non_exhaustive()
    }
}

/// A store without a quota.
impl StoreQuota for () {
    fn reserve(&self, _: u64) -> BoxFuture<'_, Result<SpaceReservation, SessionError>> {
        Box::pin(std::future::ready(Ok(SpaceReservation::unlimited())))
    }
}

/// Keeps the contents of a session's artifacts in their store while the session has them.
///
/// Each incarnation of a session identifies itself by the epoch of its lease. Work of an earlier one may still run when
/// a later one has started; it must not unpin anything of the later one.
pub trait ContentPinner: Send + Sync {
    /// Pins this content. Called before its artifact is recorded. The future may be dropped.
    ///
    /// # Errors
    /// When the content cannot be pinned, or does not exist any more. The session does not get the artifact then.
    fn pin(&self, epoch: Epoch, content: ArtifactContent) -> BoxFuture<'_, Result<(), ArtifactError>>;

    /// Pins exactly these contents, and unpins what earlier incarnations pinned. Called when the session is revived,
    /// and after changes. Calls of one incarnation do not overlap, except with a call whose future was dropped. The
    /// future may be dropped.
    ///
    /// # Errors
    /// Any failure. It is logged and tried again later.
    fn retain(&self, epoch: Epoch, contents: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>>;
}

/// A store that keeps all contents, also without pins.
impl ContentPinner for () {
    fn pin(&self, _: Epoch, _: ArtifactContent) -> BoxFuture<'_, Result<(), ArtifactError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn retain(&self, _: Epoch, _: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl ArtifactServices {
    /// The options of artifacts.
    #[must_use]
    pub fn options(&self) -> &ArtifactOptions {
        self.resolver.options()
    }
}

impl fmt::Debug for ArtifactServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtifactServices").field("options", self.options()).finish_non_exhaustive()
    }
}

/// Whether a session's artifacts have expired because the session was unused for too long. A session with a turn that runs or waits
/// for a person is in use.
#[must_use]
pub fn have_expired(state: &SessionState, options: &ArtifactOptions, now: Timestamp) -> bool {
    let is_used = state.turn().is_some() || state.view().artifacts().is_empty();
    !is_used && options.are_expired(state.last_event_at(), now)
}
