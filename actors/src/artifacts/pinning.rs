//! When the contents of a session's artifacts are kept: one for each incarnation of the session.
//!
//! A content is held before it is recorded that the session has it, and let go after it is recorded that it does not have it any more. So
//! what was acknowledged is kept, whenever the host dies; what is kept besides is let go when the session is revived.
//!
//! State, in memory: what is held for registrations under way, and what is kept. The next incarnation begins with what is recorded.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use conjure_artifact::ArtifactError;
use conjure_conversation::ArtifactContent;
use conjure_journal::Epoch;

use super::services::ContentPinner;
use crate::session::{SessionEntry, lock};

pub(crate) struct ContentPinning {
    pinner: Arc<dyn ContentPinner>,
    entry: Arc<SessionEntry>,
    epoch: Epoch,
    /// The keeper does one thing at a time.
    exclusive: tokio::sync::Mutex<()>,
    state: Mutex<PinState>,
}

#[derive(Debug, Default)]
struct PinState {
    /// What registrations under way hold, by their numbers.
    pins: BTreeMap<u64, ArtifactContent>,
    next_id: u64,
    /// What is kept, and that it is all; `None` where that is not known.
    pinned: Option<Vec<ArtifactContent>>,
    /// Whether somebody is about to put it in order.
    is_sync_pending: bool,
}

impl ContentPinning {
    /// For the incarnation of this epoch. What those before it kept is not known.
    pub(crate) fn new(pinner: Arc<dyn ContentPinner>, entry: Arc<SessionEntry>, epoch: Epoch) -> Self {
        Self { pinner, entry, epoch, exclusive: tokio::sync::Mutex::default(), state: Mutex::default() }
    }

    /// Keeps this content until it is known whether it was recorded that the session has it, which is when what is returned may be dropped.
    pub(crate) async fn pin(self: &Arc<Self>, content: ArtifactContent) -> Result<PinGuard, ArtifactError> {
        let pins = PinGuard::new(self, content.clone());
        let _exclusive = self.exclusive.lock().await;
        lock(&self.state).pinned = None;
        self.pinner.pin(self.epoch, content).await?;
        Ok(pins)
    }

    /// Whether somebody is to put in order what is kept: whoever is told so does it.
    pub(crate) fn needs_sync(&self) -> bool {
        let mut state = lock(&self.state);
        if state.is_sync_pending || state.pinned.as_ref() == Some(&self.wanted(&state)) {
            return false;
        }
        state.is_sync_pending = true;
        true
    }

    /// Keeps what the session has and what is held, and nothing else.
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

    /// What is to be kept by now, each content once.
    fn wanted(&self, state: &PinState) -> Vec<ArtifactContent> {
        let mut wanted = self.entry.observer.projection.artifact_contents();
        wanted.extend(state.pins.values().cloned());
        wanted.sort_unstable_by_key(|content| content.digest);
        wanted.dedup();
        wanted
    }
}

/// A content is kept, until this is dropped, whether the session has it or not.
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

impl fmt::Debug for ContentPinning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeping").field("session", &self.entry.key).finish_non_exhaustive()
    }
}
