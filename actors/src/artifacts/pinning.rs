//! Pins the contents of a session's artifacts. Each incarnation of the session has its own instance.
//!
//! A content is pinned before its artifact is recorded, and unpinned after the removal of its artifact is recorded. So
//! acknowledged artifacts survive a crash at any time. Superfluous pins are removed when the session is revived.
//!
//! State, in memory: the pins of registrations in progress, and the pinned contents. The next incarnation starts with
//! what is recorded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use conjure_artifact::ArtifactError;
use conjure_base::lock;
use conjure_conversation::ArtifactContent;
use conjure_journal::Epoch;

use super::services::ContentPinner;
use crate::session::SessionEntry;

pub(crate) struct ContentPinning {
    pinner: Arc<dyn ContentPinner>,
    entry: Arc<SessionEntry>,
    epoch: Epoch,
    /// Held while the pins are changed.
    exclusive: tokio::sync::Mutex<()>,
    state: Mutex<PinState>,
}

#[derive(Debug, Default)]
struct PinState {
    /// The contents that registrations in progress hold, by number.
    pins: BTreeMap<u64, ArtifactContent>,
    next_id: u64,
    /// The complete list of pinned contents; `None` if it is not known.
    pinned: Option<Vec<ArtifactContent>>,
    /// Whether a synchronisation is about to run.
    is_sync_pending: bool,
}

impl ContentPinning {
    /// The pins of the incarnation with this epoch. The pins of earlier ones are not known.
    pub(crate) fn new(pinner: Arc<dyn ContentPinner>, entry: Arc<SessionEntry>, epoch: Epoch) -> Self {
        Self { pinner, entry, epoch, exclusive: tokio::sync::Mutex::default(), state: Mutex::default() }
    }

    /// Pins this content until the outcome of its registration is known. The caller drops the guard then.
    pub(crate) async fn pin(self: &Arc<Self>, content: ArtifactContent) -> Result<PinGuard, ArtifactError> {
        let pins = PinGuard::new(self, content.clone());
        let _exclusive = self.exclusive.lock().await;
        lock(&self.state).pinned = None;
        self.pinner.pin(self.epoch, content).await?;
        Ok(pins)
    }

    /// Whether the pins must be synchronised. A caller that gets `true` must call [`ContentPinning::sync`].
    pub(crate) fn needs_sync(&self) -> bool {
        let mut state = lock(&self.state);
        if state.is_sync_pending || state.pinned.as_ref() == Some(&self.wanted(&state)) {
            return false;
        }
        state.is_sync_pending = true;
        true
    }

    /// Pins the contents of the session's artifacts and of registrations in progress, and unpins all others.
    pub(crate) async fn sync(&self) {
        let _exclusive = self.exclusive.lock().await;
        let wanted = {
            let mut state = lock(&self.state);
            (state.is_sync_pending, state.pinned) = (false, None);
            self.wanted(&state)
        };
        match self.pinner.retain(self.epoch, wanted.clone()).await {
            Ok(()) => lock(&self.state).pinned = Some(wanted),
            Err(error) => {
                tracing::warn!(session = %self.entry.key, %error, "the contents of artifacts are not pinned");
            }
        }
    }

    /// The contents to pin now, each once.
    fn wanted(&self, state: &PinState) -> Vec<ArtifactContent> {
        let mut wanted = self.entry.observer.projection.artifact_contents();
        wanted.extend(state.pins.values().cloned());
        wanted.sort_unstable_by_key(|content| content.digest);
        wanted.dedup();
        wanted
    }
}

/// Keeps a content pinned until it is dropped, whether the session has it or not.
pub(crate) struct PinGuard {
    pinning: Arc<ContentPinning>,
    id: u64,
}

impl PinGuard {
    fn new(pinning: &Arc<ContentPinning>, content: ArtifactContent) -> Self {
        let mut state = lock(&pinning.state);
        let id = state.next_id;
        state.next_id += 1;
        state.pins.insert(id, content);
        Self { pinning: Arc::clone(pinning), id }
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        lock(&self.pinning.state).pins.remove(&self.id);
    }
}
