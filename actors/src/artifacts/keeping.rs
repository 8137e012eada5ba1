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

use super::parts::ContentKeeper;
use crate::session::{Shared, lock};

pub(crate) struct Keeping {
    keeper: Arc<dyn ContentKeeper>,
    shared: Arc<Shared>,
    epoch: Epoch,
    /// The keeper does one thing at a time.
    alone: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// What registrations under way hold, by their numbers.
    held: BTreeMap<u64, ArtifactContent>,
    registrations: u64,
    /// What is kept, and that it is all; `None` where that is not known.
    kept: Option<Vec<ArtifactContent>>,
    /// Whether somebody is about to put it in order.
    is_awaited: bool,
}

impl Keeping {
    /// For the incarnation of this epoch. What those before it kept is not known.
    pub(crate) fn new(keeper: Arc<dyn ContentKeeper>, shared: Arc<Shared>, epoch: Epoch) -> Self {
        Self { keeper, shared, epoch, alone: tokio::sync::Mutex::default(), known: Mutex::default() }
    }

    /// Keeps this content until it is known whether it was recorded that the session has it, which is when what is returned may be dropped.
    pub(crate) async fn hold(self: &Arc<Self>, content: ArtifactContent) -> Result<Held, ArtifactError> {
        let held = Held::begin(self, content.clone());
        let _alone = self.alone.lock().await;
        lock(&self.known).kept = None;
        self.keeper.hold(self.epoch, content).await?;
        Ok(held)
    }

    /// Whether somebody is to put in order what is kept: whoever is told so does it.
    pub(crate) fn is_due(&self) -> bool {
        let mut known = lock(&self.known);
        if known.is_awaited || known.kept.as_ref() == Some(&self.wanted(&known)) {
            return false;
        }
        known.is_awaited = true;
        true
    }

    /// Keeps what the session has and what is held, and nothing else.
    pub(crate) async fn put_in_order(&self) {
        let _alone = self.alone.lock().await;
        let wanted = {
            let mut known = lock(&self.known);
            (known.is_awaited, known.kept) = (false, None);
            self.wanted(&known)
        };
        match self.keeper.keep(self.epoch, wanted.clone()).await {
            Ok(()) => lock(&self.known).kept = Some(wanted),
            Err(error) => {
                tracing::warn!(session = %self.shared.key, %error, "the contents of artifacts are not kept");
            }
        }
    }

    /// What is to be kept by now, each content once.
    fn wanted(&self, known: &Known) -> Vec<ArtifactContent> {
        let mut wanted = self.shared.contents();
        wanted.extend(known.held.values().cloned());
        wanted.sort_unstable_by_key(|content| content.digest);
        wanted.dedup();
        wanted
    }
}

/// A content is kept, until this is dropped, whether the session has it or not.
pub(crate) struct Held {
    keeping: Arc<Keeping>,
    number: u64,
}

impl Held {
    fn begin(keeping: &Arc<Keeping>, content: ArtifactContent) -> Self {
        let mut known = lock(&keeping.known);
        let number = known.registrations;
        known.registrations += 1;
        known.held.insert(number, content);
        Self { keeping: Arc::clone(keeping), number }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        lock(&self.keeping.known).held.remove(&self.number);
    }
}

impl fmt::Debug for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeping").field("session", &self.shared.key).finish_non_exhaustive()
    }
}
