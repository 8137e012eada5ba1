//! The actor that owns the journal.
//!
//! When it starts, it opens the journal and publishes it. Callers get I/O errors as values. A journal is lost only when
//! its threads have ended. The actor fails then, and its supervisor restarts it, which opens the journal again.
//!
//! State: the published journal. When the actor ends for any reason, it withdraws the journal, so that no caller uses
//! one that is about to be replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use conjure_journal::{Journal, JournalError};
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::handle::{JournalHandle, JournalMessage, OpenJournalRef};
use crate::supervision::{ChildId, ChildSpec, Context, Failure, Flow, SpecError, Worker, WorkerSpec};

/// Opens the journal. Called for each incarnation of its actor. Blocking work belongs on a blocking thread.
pub type OpenJournal =
    dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Journal>, JournalError>> + Send + Sync + 'static;

/// The spec of the journal's actor, and the handle of the open journal. While no journal is open, callers wait for at
/// most `timeout`.
///
/// # Errors
/// None that a caller could cause.
pub fn journal_actor(
    open: Arc<OpenJournal>,
    timeout: Duration,
) -> Result<(ChildSpec, JournalHandle), SpecError> {
    let (publish, current) = watch::channel(None);
    let publish = Arc::new(publish);
    let generations = Arc::new(AtomicU64::new(0));
    let start = move |context: Context<JournalMessage>| {
        let (open, publish, generations) =
            (Arc::clone(&open), Arc::clone(&publish), Arc::clone(&generations));
        async move {
            let waiting = context.waiting_for("the opening of the journal");
            let journal = open().await?;
            drop(waiting);
            let generation = generations.fetch_add(1, Ordering::Relaxed) + 1;
            publish.send_replace(Some(OpenJournalRef { generation, journal }));
            Ok(JournalActor { publish, generation })
        }
    };
    let (spec, address) = WorkerSpec::new(ChildId::new("journal")?, start).build();
    Ok((spec, JournalHandle::new(current, address, timeout)))
}

struct JournalActor {
    publish: Arc<watch::Sender<Option<OpenJournalRef>>>,
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
        tracing::debug!(generation, "a report about a replaced journal is ignored");
        Ok(Flow::Continue)
    }
}

impl Drop for JournalActor {
    fn drop(&mut self) {
        self.publish.send_replace(None);
    }
}
