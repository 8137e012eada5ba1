//! The actor that owns the journal.
//!
//! Its start opens the journal and publishes it. An I/O failure is a value, which callers hear; only a journal whose
//! threads have ended is lost: then the actor fails, is restarted, and opens it anew. State: the published journal. When
//! the actor ends, however, it withdraws what it published, so that nobody uses a journal that is about to be replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use conjure_journal::{Journal, JournalError};
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::access::{JournalAccess, Published};
use crate::supervision::{ChildId, ChildSpec, Context, Failure, Flow, SpecError, Worker, WorkerSpec};

/// Opens the journal. Called for each incarnation of its actor; what blocks belongs on a blocking thread.
pub type OpenJournal =
    dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Journal>, JournalError>> + Send + Sync + 'static;

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

/// The journal's actor, and the way to whatever it has open. Callers wait for at most `patience` while it is not.
///
/// # Errors
/// None but that of an id, which is given here.
pub fn journal_actor(
    open: Arc<OpenJournal>,
    patience: Duration,
) -> Result<(ChildSpec, JournalAccess), SpecError> {
    let (publish, current) = watch::channel(None);
    let publish = Arc::new(publish);
    let generations = Arc::new(AtomicU64::new(0));
    let start = move |context: Context<JournalMessage>| {
        let (open, publish, generations) =
            (Arc::clone(&open), Arc::clone(&publish), Arc::clone(&generations));
        async move {
            let waiting = context.waits_for("the opening of the journal");
            let journal = open().await?;
            drop(waiting);
            let generation = generations.fetch_add(1, Ordering::Relaxed) + 1;
            publish.send_replace(Some(Published { generation, journal }));
            Ok(JournalActor { publish, generation })
        }
    };
    let (spec, address) = WorkerSpec::new(ChildId::new("journal")?, start).build();
    Ok((spec, JournalAccess::new(current, address, patience)))
}

struct JournalActor {
    publish: Arc<watch::Sender<Option<Published>>>,
    generation: u64,
}

impl Worker for JournalActor {
    type Message = JournalMessage;

    async fn handle(
        &mut self,
        message: JournalMessage,
        _: &Context<JournalMessage>,
    ) -> Result<Flow, Failure> {
        let JournalMessage::Lost { generation, reason } = message;
        if generation == self.generation {
            return Err(format!("the journal is lost: {reason}").into());
        }
        tracing::debug!(generation, "news of a journal that was replaced is ignored");
        Ok(Flow::Continue)
    }
}

impl Drop for JournalActor {
    fn drop(&mut self) {
        self.publish.send_replace(None);
    }
}
