//! Recording which files a turn created or changed: behind its end and behind what was brought back, and before anybody hears of it.
//!
//! Only a turn that ran tools is asked for, and only one that produced something, or whose files are not all known, has a further event,
//! which is told. Each store of the session's parts is asked once ([`OutputStore::produced`]), within bounds of time. Where one fails,
//! nothing is recorded, and all are asked again at the next occasion: before the next turn begins, or when the session is revived. What
//! can be had then is recorded, and that it is not all.
//!
//! State: what is recorded, and in memory which turn produced nothing. A crash between a turn's end and its files is such an occasion, too.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use conjure_artifact::{OutputStore, Produced, TurnRecord};
use conjure_base::{Clock as _, SystemClock};
use conjure_conversation::{
    CommandKind, Completeness, Conversation, LedgerError, SessionFile, State, SubmitError,
};
use conjure_journal::SessionKey;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::bringing::IN_HASTE;
use super::shared::Shared;

/// How long it may take after a turn.
const AFTER_TURN: Duration = Duration::from_secs(120);

/// When it is looked.
pub(crate) enum Occasion<'a> {
    /// The turn has just ended. Cancelled where nobody wants to wait any more.
    TurnEnded(&'a CancellationToken),
    /// It was not to be had then.
    Later,
}

/// Whether it is to be recorded which files the session's last turn produced.
pub(crate) fn is_due(state: &State, outputs: &[Arc<dyn OutputStore>]) -> bool {
    !outputs.is_empty() && state.turn().is_none() && state.has_acted() && state.files_due().is_some()
}

/// Records the files of the last turn, where that is due.
pub(crate) async fn record_files(
    conversation: &mut Conversation,
    shared: &Shared,
    outputs: &[Arc<dyn OutputStore>],
    occasion: Occasion<'_>,
) -> Result<(), LedgerError> {
    let state = conversation.state();
    let key = &*shared.key;
    let due = state.files_due().filter(|(turn, _)| is_due(state, outputs) && !shared.made_nothing(*turn));
    let Some((turn, began)) = due else { return Ok(()) };
    let record = TurnRecord {
        turn,
        began,
        messages: state.messages_of_record(),
        known: state.files().cloned().collect(),
    };
    let asked = ask_all(key, outputs, &record, &occasion).await;
    let is_whole = asked.iter().all(Option::is_some);
    if !is_whole && matches!(occasion, Occasion::TurnEnded(_)) {
        return Ok(());
    }
    let mut all = Produced::default();
    for produced in asked.into_iter().flatten() {
        all.files.extend(produced.files);
        if produced.completeness == Completeness::Cut {
            all.completeness = Completeness::Cut;
        }
    }
    if !is_whole {
        all.completeness = Completeness::Cut;
    }
    let Produced { mut files, completeness } = all;
    let redactor = shared.redactor();
    for text in files.iter_mut().flat_map(|file| [&mut file.id, &mut file.name]) {
        // What lies at such a place is not to be had by the record, which tells no secrets.
        if let Cow::Owned(redacted) = redactor.redact(text) {
            *text = redacted;
        }
    }
    if let Occasion::Later = occasion {
        // Who looks later goes by less exact dates: what is as an earlier turn left it is no news.
        let is_news = |file: &SessionFile| {
            file.digest.is_none()
                || !record.known.iter().any(|known| {
                    (known.source, &known.id, known.digest) == (file.source, &file.id, file.digest)
                })
        };
        files.retain(is_news);
    }
    if files.is_empty() && completeness == Completeness::Whole {
        shared.note_nothing(turn);
        return Ok(());
    }
    match conversation.submit(CommandKind::ProduceFiles { turn, files, completeness }).await {
        Ok(()) => Ok(()),
        Err(SubmitError::Rejected(rejection)) => {
            tracing::debug!(session = %key, %rejection, "the files of a turn are recorded already");
            Ok(())
        }
        Err(SubmitError::Ledger(error)) => Err(error),
        Err(other) => Err(LedgerError::Failed { reason: other.to_string() }),
    }
}

/// What each store says; nothing, where it failed, which is logged.
async fn ask_all(
    key: &SessionKey,
    outputs: &[Arc<dyn OutputStore>],
    record: &TurnRecord,
    occasion: &Occasion<'_>,
) -> Vec<Option<Produced>> {
    let too_late = async {
        match occasion {
            Occasion::TurnEnded(cancel) => {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => {}
                    () = SystemClock.sleep_until(SystemClock.deadline(AFTER_TURN)) => return,
                }
            }
            Occasion::Later => {}
        }
        SystemClock.sleep_until(SystemClock.deadline(IN_HASTE)).await;
    }
    .shared();
    let ask = |store: &Arc<dyn OutputStore>| {
        let (store, too_late) = (Arc::clone(store), too_late.clone());
        async move {
            let source = store.source();
            let produced = AssertUnwindSafe(async { store.produced(record).await }).catch_unwind();
            tokio::select! {
                biased;
                produced = produced => match produced {
                    Ok(Ok(produced)) => return Some(produced),
                    Ok(Err(error)) => {
                        tracing::warn!(session = %key, %source, %error, "the files of a turn are not known");
                    }
                    Err(_) => tracing::error!(session = %key, %source, "what lists the files of a turn has crashed"),
                },
                () = too_late => {
                    tracing::warn!(session = %key, %source, "the files of a turn are not known in time");
                }
            }
            None
        }
    };
    join_all(outputs.iter().map(ask)).await
}
