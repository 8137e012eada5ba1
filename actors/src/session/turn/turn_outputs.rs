//! Records which files a turn created or changed.
//!
//! This happens after the turn's end and the copy from the sandbox, and before subscribers see the end. The task asks
//! for files only after a turn that ran tools. It records an event only if the turn produced files, or if some of its
//! files may be missing from the list.
//!
//! Each store of the session's components is asked once ([`OutputStore::turn_outputs`]), with a time limit. If one
//! fails, nothing is recorded, and a later task asks all stores again: before the next turn at the latest, or when the
//! session is revived. The second attempt records the files that it gets. If a store fails again, the event says that
//! the list is incomplete.
//!
//! State: the recorded events, and in memory the last turn that produced no files. After a crash between a turn's end
//! and the record of its files, the second attempt follows as after a failure.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use conjure_artifact::{FinishedTurnInfo, OutputStore, TurnOutputs};
use conjure_base::{Clock as _, SystemClock};
use conjure_conversation::{
    CommandKind, Completeness, Conversation, EventLogError, SessionFile, SessionState, SubmitError,
};
use conjure_journal::SessionKey;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::workspace_copy_out::SHUTDOWN_TIMEOUT;
use crate::session::lifecycle::session_entry::SessionEntry;

/// The time limit for listing the files right after a turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(120);

/// When the files are listed.
pub(crate) enum RecordTrigger<'a> {
    /// The turn has just ended. The token is cancelled when the turn is interrupted or the actor stops. From then on,
    /// the shorter time limit applies.
    TurnEnded(&'a CancellationToken),
    /// An earlier attempt failed, or a crash prevented it.
    Retry,
}

/// Whether the files of the session's last turn still have to be recorded.
pub(crate) fn is_recording_due(state: &SessionState, outputs: &[Arc<dyn OutputStore>]) -> bool {
    !outputs.is_empty() && state.turn().is_none() && state.has_run_tools() && state.files_due().is_some()
}

/// Records the files of the last turn, if that is due.
pub(crate) async fn record_outputs(
    conversation: &mut Conversation,
    entry: &SessionEntry,
    outputs: &[Arc<dyn OutputStore>],
    trigger: RecordTrigger<'_>,
) -> Result<(), EventLogError> {
    let state = conversation.state();
    let key = &*entry.key;
    let due = state.files_due().filter(|(turn, _)| {
        is_recording_due(state, outputs) && !entry.observer.projection.has_no_outputs(*turn)
    });
    let Some((turn, began)) = due else { return Ok(()) };
    let record = FinishedTurnInfo {
        turn,
        began,
        messages: state.uncompacted_messages(),
        known: state.files().cloned().collect(),
    };
    let produced_by_store = query_stores(key, outputs, &record, &trigger).await;
    let is_complete = produced_by_store.iter().all(Option::is_some);
    if !is_complete && matches!(trigger, RecordTrigger::TurnEnded(_)) {
        return Ok(());
    }
    let mut all = TurnOutputs::default();
    for produced in produced_by_store.into_iter().flatten() {
        all.files.extend(produced.files);
        if produced.completeness == Completeness::Truncated {
            all.completeness = Completeness::Truncated;
        }
    }
    if !is_complete {
        all.completeness = Completeness::Truncated;
    }
    let TurnOutputs { mut files, completeness } = all;
    let redactor = entry.redactor();
    for text in files.iter_mut().flat_map(|file| [&mut file.id, &mut file.name]) {
        // A file with a secret in its name cannot be opened by its recorded name, which is redacted.
        if let Cow::Owned(redacted) = redactor.redact(text) {
            *text = redacted;
        }
    }
    if let RecordTrigger::Retry = trigger {
        // A later listing has less exact times, so it may contain files of earlier turns. Files that are unchanged since
        // they were recorded are skipped.
        let is_changed = |file: &SessionFile| {
            file.digest.is_none()
                || !record.known.iter().any(|known| {
                    (known.source, &known.id, known.digest) == (file.source, &file.id, file.digest)
                })
        };
        files.retain(is_changed);
    }
    if files.is_empty() && completeness == Completeness::Complete {
        entry.observer.projection.mark_no_outputs(turn);
        return Ok(());
    }
    match conversation.submit(CommandKind::ProduceFiles { turn, files, completeness }).await {
        Ok(()) => Ok(()),
        Err(SubmitError::Rejected(rejection)) => {
            tracing::debug!(session = %key, %rejection, "the files of a turn are recorded already");
            Ok(())
        }
        Err(SubmitError::EventLog(error)) => Err(error),
        Err(other) => Err(EventLogError::Failed { reason: other.to_string() }),
    }
}

/// The files from each store; `None` if the store failed, panicked or took too long, which is logged.
async fn query_stores(
    key: &SessionKey,
    outputs: &[Arc<dyn OutputStore>],
    record: &FinishedTurnInfo,
    trigger: &RecordTrigger<'_>,
) -> Vec<Option<TurnOutputs>> {
    let timed_out = async {
        match trigger {
            RecordTrigger::TurnEnded(cancel) => {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => {}
                    () = SystemClock.sleep_until(SystemClock.deadline(TURN_TIMEOUT)) => return,
                }
            }
            RecordTrigger::Retry => {}
        }
        SystemClock.sleep_until(SystemClock.deadline(SHUTDOWN_TIMEOUT)).await;
    }
    .shared();
    let query = |store: &Arc<dyn OutputStore>| {
        let (store, timed_out) = (Arc::clone(store), timed_out.clone());
        async move {
            let source = store.source();
            let produced = AssertUnwindSafe(async { store.turn_outputs(record).await }).catch_unwind();
            tokio::select! {
                biased;
                produced = produced => match produced {
                    Ok(Ok(produced)) => return Some(produced),
                    Ok(Err(error)) => {
                        tracing::warn!(session = %key, %source, %error, "the files of a turn could not be listed");
                    }
                    Err(_) => tracing::error!(session = %key, %source, "listing the files of a turn panicked"),
                },
                () = timed_out => {
                    tracing::warn!(session = %key, %source, "the files of a turn could not be listed in time");
                }
            }
            None
        }
    };
    join_all(outputs.iter().map(query)).await
}
