//! Deletes the files that a cleanup note names, in batches.
//!
//! State: only the notes. An interrupted batch is repeated. Files that it had deleted are then absent, which counts as
//! deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use conjure_actors::metrics::RemoteDeletion;
use conjure_artifact::{DeleteError, DeleteOutcome, ServiceFileDeletion};
use conjure_base::{Clock as _, Deadline, SystemClock, with_deadline};
use conjure_journal::SessionKey;
use futures_util::future::join_all;

use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::remote_cleanup::batch_result::{
    BatchResult, DELETE_TIMEOUT, DeleteResult, MAX_FAILURES, NO_TIME, note_lock_timeout,
};
use crate::runtime::remote_cleanup::cleanup_note::{CleanupNote, FilesToDelete};

/// How many files are deleted concurrently.
const CONCURRENCY: usize = 4;
/// How many files of one note are deleted before the next note is processed.
const BATCH_SIZE: usize = 200;
/// The reason if the circuit breaker was open.
const SKIPPED: &str = "the service did not answer others just before";
/// The reason if the service does not have the file under a key that may differ from the original one.
const NOT_UNDER_THIS_KEY: &str =
    "the current key has no such file, and may differ from the key that was used for the upload";
/// Skips accounts at services that do not respond, for the rest of one run.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker(BTreeMap<String, ServiceHealth>);

/// How an account of a service responds.
#[derive(Debug)]
enum ServiceHealth {
    /// Deletions of these files failed since the account's last success or refusal.
    Failing(BTreeSet<String>),
    /// It did not respond.
    Unresponsive,
}

impl CircuitBreaker {
    /// Whether this account is skipped: it does not respond, or fails repeatedly.
    fn is_open(&self, account: &str) -> bool {
        match self.0.get(account) {
            Some(ServiceHealth::Failing(files)) => files.len() >= MAX_FAILURES,
            Some(ServiceHealth::Unresponsive) => true,
            None => false,
        }
    }

    fn record_success(&mut self, account: &str) {
        if let Some(ServiceHealth::Failing(_)) = self.0.get(account) {
            self.0.remove(account);
        }
    }

    fn record_failure(&mut self, account: &str, file: &str) {
        let health =
            self.0.entry(account.to_owned()).or_insert_with(|| ServiceHealth::Failing(BTreeSet::new()));
        if let ServiceHealth::Failing(files) = health {
            files.insert(file.to_owned());
        }
    }

    fn record_no_answer(&mut self, account: &str) {
        self.0.insert(account.to_owned(), ServiceHealth::Unresponsive);
    }
}

/// Deletes a batch of the note of this name.
pub(crate) async fn process_note(
    runtime: &Runtime,
    name: &str,
    breaker: &mut CircuitBreaker,
    deadline: Deadline,
) -> Result<BatchResult, RuntimeError> {
    let notes = &runtime.inner.notes;
    let mut batch = BatchResult::default();
    let Some(note) = notes.get(name).await? else { return Ok(batch) };
    if SystemClock.remaining(deadline).is_zero() {
        return Ok(BatchResult::untried(&note, NO_TIME));
    }
    #[cfg(feature = "anthropic")]
    if let Some(skills) = &note.skills {
        return crate::runtime::remote_cleanup::delete_skills::process_skills(
            runtime, name, &note, skills, deadline,
        )
        .await;
    }
    let records = match within_time(deadline, runtime.session_reader()).await {
        None => return Ok(BatchResult::untried(&note, NO_TIME)),
        Some(Err(error)) => {
            let reason = error.to_string();
            return Ok(BatchResult { failure: Some(reason.clone()), ..BatchResult::untried(&note, &reason) });
        }
        Some(Ok(records)) => records,
    };
    let mut done = Vec::new();
    let mut room = BATCH_SIZE;
    for entry in &note.remaining {
        let key = SessionKey::new(note.tenant.clone(), entry.session);
        match within_time(deadline, records.info(&key)).await {
            Some(Err(RuntimeError::NotFound { .. })) => {}
            // The session is not deleted, or not deleted yet.
            Some(Ok(_)) => continue,
            // This session must not delay the others.
            Some(Err(error)) => {
                let reason = error.to_string();
                batch.remaining.push(entry.report(&reason));
                batch.failure = Some(reason);
                continue;
            }
            None => {
                batch.remaining.push(entry.report(NO_TIME));
                continue;
            }
        }
        let tried = delete_batch(runtime, &note, entry, room, breaker, deadline).await;
        room = room.saturating_sub(tried.deleted.len());
        batch.deleted += tried.deleted.len() as u64;
        let rest =
            entry.files.iter().filter(|file| !tried.deleted.contains(*file)).cloned().collect::<Vec<_>>();
        let failure = tried.refusal_reason.clone().or(tried.retry_reason.clone());
        batch.is_skipped |= tried.is_skipped;
        if !rest.is_empty() {
            let reason = failure.as_deref().unwrap_or(if tried.is_skipped { SKIPPED } else { NO_TIME });
            batch.remaining.push(FilesToDelete { files: rest, ..entry.clone() }.report(reason));
        }
        batch.failure = batch.failure.or(failure);
        done.push((entry, tried));
    }
    let is_refused = done.iter().any(|(_, tried)| !tried.refused.is_empty());
    let is_hopeless = is_refused && note.is_given_up(SystemClock.timestamp());
    if is_hopeless {
        done.iter()
            .filter(|(_, tried)| !tried.refused.is_empty())
            .for_each(|(entry, tried)| give_up(&note, entry, tried));
    }
    let done: Vec<_> = done
        .into_iter()
        .map(|(entry, tried)| (entry.session, tried.deleted, tried.refused, tried.retryable))
        .collect();
    let failed: BTreeSet<_> =
        done.iter().filter(|(.., retryable)| !retryable.is_empty()).map(|(session, ..)| *session).collect();
    let must_reorder = is_refused || !failed.is_empty();
    let changed = move |note: &mut CleanupNote| {
        note.refusals += u32::from(is_refused);
        for (session, deleted, refused, retryable) in &done {
            note.remove_files(*session, deleted);
            if is_hopeless {
                note.remove_files(*session, refused);
            } else {
                note.move_to_end(*session, refused);
            }
            note.move_to_end(*session, retryable);
        }
        note.move_sessions_to_end(&failed);
    };
    if (batch.deleted > 0 || must_reorder)
        && let Err(error) = notes.update(name, note_lock_timeout(deadline), changed).await
    {
        // The files are deleted although the note still names them. The next batch finds them absent.
        batch.failure = Some(error.to_string());
    }
    Ok(batch)
}

/// Logs the names of what remains.
fn give_up(note: &CleanupNote, entry: &FilesToDelete, tried: &DeleteResult) {
    let service = entry.account.as_ref().map_or("unknown", |account| account.service.as_str());
    let model = entry.model.as_deref().unwrap_or("unknown");
    let reason = tried.refusal_reason.as_deref().unwrap_or_default();
    let (tenant, session, files) = (&note.tenant, entry.session, &tried.refused);
    RemoteDeletion::GivenUp.count(files.len() as u64);
    tracing::warn!(
        %tenant, %session, service, model, ?files, reason,
        "the service refuses to delete files of a deleted session; they stay there unless they are deleted by hand"
    );
}

/// Deletes some files of a session.
async fn delete_batch(
    runtime: &Runtime,
    note: &CleanupNote,
    entry: &FilesToDelete,
    room: usize,
    breaker: &mut CircuitBreaker,
    deadline: Deadline,
) -> DeleteResult {
    let mut tried = DeleteResult::default();
    let removal = match runtime.inner.factory.file_removal(&note.tenant, entry.model.as_deref()) {
        Ok(removal) => removal,
        Err(reason) => return tried.all_refused(&entry.files, reason),
    };
    let account = removal.account();
    if let Some(noted) = entry.account.as_ref().filter(|noted| noted.service != account.service) {
        let reason = format!(
            "the model now belongs to `{}`, but the files are at `{}`",
            account.service, noted.service
        );
        return tried.all_refused(&entry.files, reason);
    }
    let name = format!("{} {}", account.service, account.key);
    if breaker.is_open(&name) {
        tried.is_skipped = true;
        return tried;
    }
    let is_same_key = entry.account.as_ref().is_some_and(|noted| noted.key == account.key);
    let files: Vec<&String> = entry.files.iter().take(room).collect();
    for chunk in files.chunks(CONCURRENCY) {
        if SystemClock.remaining(deadline).is_zero() || breaker.is_open(&name) {
            break;
        }
        let mut key_refused = None;
        let removing = chunk.iter().map(|id| remove(&removal, id, deadline));
        // All outcomes are collected before any is used.
        for (id, removed) in chunk.iter().zip(join_all(removing).await) {
            match &removed {
                Err(DeleteError::Unreachable { .. }) => breaker.record_no_answer(&name),
                Ok(_) | Err(DeleteError::KeyRefused { .. } | DeleteError::Refused { .. }) => {
                    breaker.record_success(&name);
                }
                Err(_) => breaker.record_failure(&name, id),
            }
            let outcome = match removed {
                Ok(DeleteOutcome::Deleted) => RemoteDeletion::Deleted,
                Ok(DeleteOutcome::Absent) if is_same_key => RemoteDeletion::Absent,
                Ok(DeleteOutcome::Absent) => {
                    tried.refused(id, NOT_UNDER_THIS_KEY.to_owned());
                    continue;
                }
                Err(DeleteError::KeyRefused { reason }) => {
                    key_refused = Some(reason);
                    continue;
                }
                Err(DeleteError::Refused { reason }) => {
                    tried.refused(id, reason);
                    continue;
                }
                Err(error) => {
                    tried.retryable(id, error.to_string());
                    continue;
                }
            };
            outcome.count(1);
            tried.deleted.insert((*id).clone());
        }
        if let Some(reason) = key_refused {
            return tried.all_refused(&entry.files, reason);
        }
    }
    tried
}

/// Runs `work` until the deadline. Does not start it if the deadline has passed. `None` means that there was no time.
async fn within_time<T>(deadline: Deadline, work: impl Future<Output = T>) -> Option<T> {
    if SystemClock.remaining(deadline).is_zero() {
        return None;
    }
    with_deadline(&SystemClock, deadline, work).await.ok()
}

async fn remove(
    removal: &Arc<dyn ServiceFileDeletion>,
    id: &str,
    deadline: Deadline,
) -> Result<DeleteOutcome, DeleteError> {
    let deadline = SystemClock.deadline(DELETE_TIMEOUT).min(deadline);
    tokio::select! {
        biased;
        removed = removal.delete(id) => removed,
        () = SystemClock.sleep_until(deadline) => {
            Err(DeleteError::Unreachable { reason: "the service did not answer in time".to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use conjure_base::{SessionId, TenantId};

    use super::*;
    use crate::config::{Config, ExecutorKind, ProcessEnv, Settings};
    use crate::runtime::RuntimeOptions;

    #[tokio::test]
    async fn when_its_time_is_over_what_is_noted_is_reported_and_nothing_is_looked_up() {
        let settings = Settings { executor: Some(ExecutorKind::Local), ..Settings::default() };
        let config = Config::from_layers(settings, &ProcessEnv::default(), None).unwrap();
        let runtime = Runtime::spawn(RuntimeOptions::from(config).ephemeral()).await.unwrap();
        let entry = FilesToDelete {
            session: SessionId::from_bits(1),
            model: Some("m".to_owned()),
            account: None,
            files: vec!["a".to_owned(), "b".to_owned()],
        };
        let note =
            CleanupNote::new(TenantId::new("acme").unwrap(), SystemClock.timestamp(), vec![entry.clone()]);
        let notes = &runtime.inner.notes;
        let name = notes.put(note.clone()).await.unwrap().unwrap();
        let over = SystemClock.deadline(Duration::ZERO);
        let batch = process_note(&runtime, &name, &mut CircuitBreaker::default(), over).await.unwrap();
        assert_eq!((batch.remaining, batch.failure), (vec![entry.report(NO_TIME)], None));
        assert_eq!(notes.get(&name).await.unwrap(), Some(note));
        assert_eq!(within_time(over, std::future::ready(1)).await, None);
        let soon = SystemClock.deadline(Duration::from_secs(60));
        assert_eq!(within_time(soon, std::future::ready(1)).await, Some(1));
        // There is no such model.
        let batch = process_note(&runtime, &name, &mut CircuitBreaker::default(), soon).await.unwrap();
        assert!(batch.remaining[0].reason.contains("`m`"), "{batch:?}");
        assert_eq!(notes.get(&name).await.unwrap().unwrap().refusals, 1);
        runtime.shutdown(soon).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_longer_than_there_is_time_is_left() {
        let soon = SystemClock.deadline(Duration::from_secs(60));
        assert_eq!(within_time(soon, std::future::pending::<()>()).await, None);
    }

    #[test]
    fn an_account_is_left_alone_when_it_does_not_answer_or_fails_of_several_files_in_a_row() {
        // Lower case: this file fails; upper case: no response; `+`: success or refusal.
        for (said, expected) in [
            ("", false),
            ("A", true),
            ("A+", true),
            ("aA+", true),
            ("ab", false),
            ("aaaa", false),
            ("abc", true),
            ("ab+c", false),
            ("ab+cde", true),
            // Concurrent with the others.
            ("abc+", false),
        ] {
            let mut breaker = CircuitBreaker::default();
            for file in said.chars() {
                match file {
                    '+' => breaker.record_success("it"),
                    'A'..='Z' => breaker.record_no_answer("it"),
                    file => breaker.record_failure("it", &file.to_string()),
                }
            }
            assert_eq!((breaker.is_open("it"), breaker.is_open("another")), (expected, false), "{said}");
        }
    }
}
