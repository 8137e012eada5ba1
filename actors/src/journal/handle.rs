//! The handle with which sessions reach the open journal.
//!
//! The journal's actor publishes the journal that it has opened. Callers read it from the handle, without a message to
//! the actor. While no journal is open, callers wait for the next one, for at most the handle's timeout, or until the
//! runtime has shut down. State: the published journal, which is withdrawn when its actor ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_journal::{Journal, JournalError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::supervision::Address;

/// A message to the journal's actor.
#[derive(Debug)]
#[non_exhaustive]
pub enum JournalMessage {
    /// A caller found the journal lost.
    Lost {
        /// The generation of the lost journal, so that its loss is not attributed to its successor.
        generation: u64,
        /// The journal's error.
        reason: String,
    },
}

/// The open journal and its generation.
#[derive(Clone)]
pub(crate) struct OpenJournalRef {
    pub(crate) generation: u64,
    pub(crate) journal: Arc<dyn Journal>,
}

/// A handle of the journal, which stays valid when the journal is opened again. Cheap to clone.
#[derive(Clone)]
pub struct JournalHandle {
    current: watch::Receiver<Option<OpenJournalRef>>,
    actor: Address<JournalMessage>,
    timeout: Duration,
    /// Cancelled after the shutdown: no journal is opened any more.
    closed: CancellationToken,
}

/// Why no journal is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JournalUnavailable {
    /// None was opened in this time.
    #[error("the journal was not open within {0:?}")]
    TimedOut(Duration),
    /// The runtime has shut down.
    #[error("the journal is closed, because the runtime has shut down")]
    Closed,
}

/// Why a call of the journal failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JournalCallError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Unavailable(#[from] JournalUnavailable),
}

impl JournalHandle {
    pub(crate) fn new(
        current: watch::Receiver<Option<OpenJournalRef>>,
        actor: Address<JournalMessage>,
        timeout: Duration,
    ) -> Self {
        Self { current, actor, timeout, closed: CancellationToken::new() }
    }

    /// Ends the waits of all callers, now and later: the journal's actor has stopped for good.
    pub(crate) fn close(&self) {
        self.closed.cancel();
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

    /// The journal that is open now, with its generation.
    pub(super) fn published(&self) -> Option<OpenJournalRef> {
        self.current.borrow().clone()
    }

    /// The open journal. Waits if none is open.
    ///
    /// # Errors
    /// If none was opened in time, or the runtime has shut down.
    pub async fn journal(&self) -> Result<Arc<dyn Journal>, JournalUnavailable> {
        Ok(self.current().await?.journal)
    }

    pub(super) async fn current(&self) -> Result<OpenJournalRef, JournalUnavailable> {
        let mut current = self.current.clone();
        let open = async {
            match current.wait_for(Option::is_some).await {
                Ok(published) => published.clone(),
                // The spec of the journal's actor was dropped: the tree has ended.
                Err(_) => None,
            }
        };
        let timed_out = SystemClock.sleep_until(SystemClock.deadline(self.timeout));
        tokio::select! {
            biased;
            published = open => published.ok_or(JournalUnavailable::Closed),
            () = self.closed.cancelled() => Err(JournalUnavailable::Closed),
            () = timed_out => Err(JournalUnavailable::TimedOut(self.timeout)),
        }
    }

    /// Calls the journal. If the journal is lost, its actor is notified and opens it again. The call is not repeated,
    /// because it is unknown whether it was carried out.
    pub(crate) async fn call<T, F>(&self, call: impl FnOnce(&dyn Journal) -> F) -> Result<T, JournalCallError>
    where
        F: Future<Output = Result<T, JournalError>>,
    {
        let published = self.current().await?;
        let result = call(&*published.journal).await;
        if let Err(error) = &result {
            self.report(&published, error);
        }
        Ok(result?)
    }

    /// Notifies the journal's actor if this error means that the journal is lost.
    pub(super) fn report(&self, published: &OpenJournalRef, error: &JournalError) {
        if error.is_critical() {
            let lost = JournalMessage::Lost { generation: published.generation, reason: error.to_string() };
            if let Err(error) = self.actor.send(lost) {
                tracing::debug!(%error, "the journal's actor knows of the loss already");
            }
        }
    }
}

impl fmt::Debug for JournalHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalHandle").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}
