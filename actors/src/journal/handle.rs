//! How sessions reach the journal: whichever is open now.
//!
//! The journal's actor publishes what it has opened; everybody takes it from here for each call, without asking the actor.
//! While it is being replaced, callers wait for the next one, each until its own deadline. State: none but the published
//! journal, which is withdrawn when its actor ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_journal::{Journal, JournalError};
use tokio::sync::watch;

use crate::supervision::Address;

/// What the journal's actor understands.
#[derive(Debug)]
#[non_exhaustive]
pub enum JournalMessage {
    /// Somebody found the journal lost.
    Lost {
        /// Which one, so that the loss of one that was replaced is not taken for that of its successor.
        generation: u64,
        /// What it said.
        reason: String,
    },
}

/// The journal that is open, and the how-manieth it is.
#[derive(Clone)]
pub(crate) struct OpenJournalRef {
    pub(crate) generation: u64,
    pub(crate) journal: Arc<dyn Journal>,
}

/// The way to the journal. Cheap to clone; good over all the journal's incarnations.
#[derive(Clone)]
pub struct JournalHandle {
    current: watch::Receiver<Option<OpenJournalRef>>,
    actor: Address<JournalMessage>,
    timeout: Duration,
}

/// Nobody opened the journal in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the journal was not open within {0:?}")]
pub struct JournalUnavailable(pub Duration);

/// Why a call of the journal came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JournalCallError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Unavailable(#[from] JournalUnavailable),
}

impl JournalHandle {
    pub(crate) const fn new(
        current: watch::Receiver<Option<OpenJournalRef>>,
        actor: Address<JournalMessage>,
        timeout: Duration,
    ) -> Self {
        Self { current, actor, timeout }
    }

    /// Whether a journal is open now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.current.borrow().is_some()
    }

    /// The journal that is open now.
    pub(crate) fn open(&self) -> Option<Arc<dyn Journal>> {
        self.current.borrow().as_ref().map(|published| Arc::clone(&published.journal))
    }

    /// The open journal, waited for where there is none.
    ///
    /// # Errors
    /// When none was opened in time.
    pub async fn journal(&self) -> Result<Arc<dyn Journal>, JournalUnavailable> {
        Ok(self.current().await?.journal)
    }

    async fn current(&self) -> Result<OpenJournalRef, JournalUnavailable> {
        let mut current = self.current.clone();
        let open = async {
            match current.wait_for(Option::is_some).await {
                Ok(published) => published.clone(),
                // Its actor's spec is gone: the tree has ended.
                Err(_) => None,
            }
        };
        let timed_out = SystemClock.sleep_until(SystemClock.deadline(self.timeout));
        tokio::select! {
            biased;
            published = open => published.ok_or(JournalUnavailable(self.timeout)),
            () = timed_out => Err(JournalUnavailable(self.timeout)),
        }
    }

    /// Makes one call. One that finds the journal lost says so to its actor, which opens it anew; the call itself is not
    /// repeated, as nobody knows whether it was carried out.
    pub(crate) async fn call<T, F>(&self, call: impl FnOnce(&dyn Journal) -> F) -> Result<T, JournalCallError>
    where
        F: Future<Output = Result<T, JournalError>>,
    {
        let published = self.current().await?;
        let result = call(&*published.journal).await;
        if let Err(error) = &result
            && error.is_critical()
        {
            let lost = JournalMessage::Lost { generation: published.generation, reason: error.to_string() };
            if let Err(error) = self.actor.send(lost) {
                tracing::debug!(%error, "the journal's actor knows of the loss already");
            }
        }
        Ok(result?)
    }
}

impl fmt::Debug for JournalHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalAccess").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}
