//! Deletes the records of sessions that have files at a service. While the caller waits, also deletes those files.
//!
//! State: only the notes. Each note is on the disk before the record is removed.

use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock, TenantId};
use conjure_conversation::SessionProfile;
use conjure_journal::{JournalError, SessionKey};

use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::remote_cleanup::batch_result::BatchResult;
use crate::runtime::remote_cleanup::cleanup_note::{CleanupNote, FilesToDelete};
use crate::runtime::remote_cleanup::delete_files::{CircuitBreaker, process_note};
use crate::runtime::remote_cleanup::deletion_report::{
    DeletionReport, RemainingFiles, RemainingSkills, RemoteSkillOutcome,
};
use crate::runtime::remote_cleanup::remote_files::remote_files;
use crate::runtime::remote_cleanup::remote_files::{RemoteFiles, is_damage};
use crate::runtime::session::readers::session_reader::SessionReader;

/// How long a session may take to stop.
pub(in crate::runtime) const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The condition of a deletion.
#[derive(Clone, Copy)]
pub(crate) enum DeleteCondition {
    /// No condition.
    Always,
    /// Only if the session still has this many events, so that it was not used since it was inspected.
    Unchanged(u64),
}

/// How long a caller waits for services. The rest is deleted in the background.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(10);

/// How many sessions of a tenant share a note.
const SESSIONS_PER_NOTE: usize = 256;

/// How often the search for a session's files is tried, if the session is used meanwhile.
const MAX_ATTEMPTS: u32 = 8;

/// What a deletion leaves at services.
#[derive(Debug, Default)]
pub(crate) struct RemoteLeftovers {
    /// The names of the notes.
    pub(crate) notes: Vec<String>,
    /// Sessions whose files are not known.
    pub(crate) unknown: Vec<RemainingFiles>,
    /// Skills that are not deleted.
    pub(crate) kept_skills: Vec<RemainingSkills>,
}

impl Runtime {
    /// Deletes the files and skills that these notes name, for a limited time. Returns what remains.
    pub(crate) async fn delete_remote_now(&self, leftovers: RemoteLeftovers) -> DeletionReport {
        let deadline = SystemClock.deadline(REMOTE_TIMEOUT);
        let mut deletion = DeletionReport { files: leftovers.unknown, skills: leftovers.kept_skills };
        let mut breaker = CircuitBreaker::default();
        for name in leftovers.notes {
            loop {
                let batch = tokio::select! {
                    biased;
                    () = self.inner.tasks.closed() => {
                        process_note(self, &name, &mut CircuitBreaker::default(), SystemClock.deadline(Duration::ZERO)).await
                    }
                    batch = process_note(self, &name, &mut breaker, deadline) => batch,
                };
                match batch {
                    Ok(BatchResult { deleted, failure: None, is_skipped: false, remaining, .. })
                        if deleted > 0 && !remaining.is_empty() =>
                    {
                        continue;
                    }
                    Ok(batch) => {
                        deletion.files.extend(batch.remaining);
                        deletion.skills.extend(batch.skills);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a maintenance task will delete the files of deleted sessions at services");
                        // The content of the note is not known.
                        let reason = error.to_string();
                        match name.parse() {
                            Ok(session) => deletion.files.push(RemainingFiles {
                                session,
                                model: None,
                                service: None,
                                files: Vec::new(),
                                reason,
                            }),
                            Err(_) => deletion.skills.push(RemainingSkills {
                                service: "its model's service".to_owned(),
                                skills: Vec::new(),
                                outcome: RemoteSkillOutcome::DeletedLater,
                                reason,
                            }),
                        }
                    }
                }
                break;
            }
        }
        deletion
    }

    /// Deletes the record of a session after its files were written to a note.
    ///
    /// If the session is then not deleted, the note stays. Another process may delete the session at this moment and
    /// rely on the note. The note has no effect while the record exists.
    pub(crate) async fn delete_noted(
        &self,
        key: &SessionKey,
        profile: &SessionProfile,
        only: DeleteCondition,
        leftovers: &mut RemoteLeftovers,
        deadline: Deadline,
    ) -> Result<(), RuntimeError> {
        let (tree, records) = (&self.inner.tree, self.session_reader().await?);
        for _ in 0..MAX_ATTEMPTS {
            if let DeleteCondition::Always = only {
                tree.stop(key, deadline).await?;
            }
            let (to_delete, found) = self.find_remote_files(&records, key, profile).await?;
            leftovers.unknown = found
                .unreadable
                .map(|reason| report_unknown_files(key, profile, reason))
                .into_iter()
                .collect();
            let note = CleanupNote::new(key.tenant.clone(), SystemClock.timestamp(), to_delete);
            leftovers.notes = self.inner.notes.put(note).await?.into_iter().collect();
            tracing::trace!(session = %key, "what a session has at its service is noted");
            // A new deadline, since reading the record may have taken long.
            let deadline = SystemClock.deadline(STOP_TIMEOUT);
            let events = match only {
                DeleteCondition::Unchanged(events) => events,
                DeleteCondition::Always => found.events,
            };
            match tree.delete_unchanged(key, events, deadline).await.map_err(RuntimeError::from) {
                // A caller used the session through a handle meanwhile. It is tried again.
                Err(RuntimeError::Journal(JournalError::Conflict { .. }))
                    if matches!(only, DeleteCondition::Always) => {}
                deleted => return deleted,
            }
        }
        // The session is deleted in its current state. Files of events after the last search are in no note.
        tree.delete(key, deadline).await?;
        let reason =
            format!("the session was used each of the {MAX_ATTEMPTS} times that its record was read");
        leftovers.unknown.push(report_unknown_files(key, profile, reason));
        Ok(())
    }

    /// Writes the files of all sessions of a tenant to notes, before the tenant is deleted.
    pub(crate) async fn record_notes(
        &self,
        tenant: &TenantId,
        leftovers: &mut RemoteLeftovers,
    ) -> Result<(), RuntimeError> {
        let records = self.session_reader().await?;
        let mut pending = Vec::new();
        for session in records.ids(tenant).await? {
            let key = SessionKey::new(tenant.clone(), session);
            let profile = match records.opened_profile(&key).await {
                Ok(profile) if self.may_have_remote_files(&records, &key, &profile).await => profile,
                Ok(_) | Err(RuntimeError::NotFound { .. }) => continue,
                Err(RuntimeError::Unreadable { .. }) => SessionProfile::default(),
                Err(RuntimeError::Journal(error)) if is_damage(&error) => SessionProfile::default(),
                Err(error) => return Err(error),
            };
            let (to_delete, found) = self.find_remote_files(&records, &key, &profile).await?;
            leftovers
                .unknown
                .extend(found.unreadable.map(|reason| report_unknown_files(&key, &profile, reason)));
            pending.extend(to_delete);
            if pending.len() >= SESSIONS_PER_NOTE {
                self.record_note(tenant, &mut pending).await?;
            }
        }
        self.record_note(tenant, &mut pending).await?;
        tracing::trace!(%tenant, "what a tenant has at services is noted");
        // This includes notes of sessions that were deleted before, and notes of an interrupted deletion of the tenant.
        leftovers.notes = self.inner.notes.names_for_tenant(tenant).await?;
        Ok(())
    }

    /// Writes the note of these sessions.
    async fn record_note(
        &self,
        tenant: &TenantId,
        pending: &mut Vec<FilesToDelete>,
    ) -> Result<(), RuntimeError> {
        let to_delete = std::mem::take(pending);
        let note = CleanupNote::new(tenant.clone(), SystemClock.timestamp(), to_delete);
        self.inner.notes.put(note).await.map(drop)
    }

    /// Whether the session may have files at the service of its current model or an earlier one. `profile` is the one
    /// that the session was opened with.
    pub(crate) async fn may_have_remote_files(
        &self,
        records: &SessionReader,
        key: &SessionKey,
        profile: &SessionProfile,
    ) -> bool {
        let factory = &self.inner.factory;
        if factory.may_have_files(&key.tenant, profile) {
            return true;
        }
        let of_model = |model| SessionProfile { model: Some(model), ..profile.clone() };
        match records.model_changes(key).await {
            Ok(models) => {
                models.into_iter().any(|model| factory.may_have_files(&key.tenant, &of_model(model)))
            }
            // The later search for the files reports what is wrong with the record.
            Err(_) => true,
        }
    }

    /// Finds the files of a session at its models' services in its record. `profile` is the one that the session was
    /// opened with.
    pub(crate) async fn find_remote_files(
        &self,
        records: &SessionReader,
        key: &SessionKey,
        profile: &SessionProfile,
    ) -> Result<(Vec<FilesToDelete>, RemoteFiles), RuntimeError> {
        let removal = |model: Option<&str>| self.inner.factory.file_removal(&key.tenant, model).ok();
        let mut found = remote_files(records, key, profile.model.as_deref(), removal).await?;
        let to_delete = std::mem::take(&mut found.files).into_iter().map(|(model, files)| FilesToDelete {
            session: key.session,
            account: removal(model.as_deref()).map(|removal| removal.account().into()),
            model,
            files,
        });
        Ok((to_delete.collect(), found))
    }
}

/// The report for a session whose record cannot be read.
pub(crate) fn report_unknown_files(
    key: &SessionKey,
    profile: &SessionProfile,
    reason: String,
) -> RemainingFiles {
    tracing::warn!(session = %key, reason, "the files of a deleted session at its model's service are unknown, and stay there");
    RemainingFiles {
        session: key.session,
        model: profile.model.clone(),
        service: None,
        files: Vec::new(),
        reason,
    }
}
