//! Deletes a session: its record, its workspace, the skills that no other session has, and its files at its model's
//! service.
//!
//! An intent record is written first and removed at the end. An interrupted deletion is completed by the next start.
//! Before the record is removed, the session's files at services are written to a cleanup note (`remote_cleanup`). They
//! are deleted there at the end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::session::SessionError;
use conjure_base::{Clock as _, Deadline, Digest, SessionId, SystemClock, TenantId};
use conjure_conversation::{PinnedSkill, SessionProfile};
use conjure_journal::{JournalError, SessionKey};

use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::remote_cleanup::{DeleteCondition, DeletionReport, RemoteLeftovers, STOP_TIMEOUT};
use crate::runtime::session::readers::session_reader::SessionReader;
use crate::runtime::task_set::run_blocking;

/// How long a refused deletion waits for other tasks of this process that open or delete sessions.
const REFUSED_LOCK_TIMEOUT: Duration = Duration::from_millis(500);

/// The skills that the session pinned.
pub(crate) enum PinnedSkillsSource {
    /// The skills that its record names, if it has a record.
    AsRecorded,
    /// These skills. The session may have no record.
    Listed(Vec<PinnedSkill>),
}

/// Whether the skills of a deleted session are cleaned up.
enum SkillCleanup {
    Done,
    /// The next start cleans up: another process held the lock, or the skills are not known.
    AtNextStart,
}

impl Runtime {
    /// Deletes a session for ever: its record and its own workspace. A session that is live here is stopped first. The
    /// deletion continues even if the future is dropped.
    ///
    /// The session's files at its model's service are deleted there, too: its uploaded artifacts, and the files that
    /// the service's tools produced. A slow service does not delay the deletion here.
    ///
    /// Files that remain after ten seconds are returned in [`DeletionReport::files`], and written to a note in the data
    /// directory. The janitor deletes them in the background, also in later processes. If the service refuses, or no key
    /// is known any more, the janitor gives up after three days and twenty attempts. It then logs a warning that names
    /// what remains.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::NotFound`] if the tenant has no session of this id. An earlier deletion may have been
    /// interrupted after the record was removed. The workspace that it left is removed in spite of this error.
    ///
    /// Another error if another process has the session, or if the session does not stop in time.
    pub async fn delete(&self, tenant: &TenantId, id: SessionId) -> Result<DeletionReport, RuntimeError> {
        let (runtime, key) = (self.clone(), SessionKey::new(tenant.clone(), id));
        let deleting = async move {
            let leftovers =
                runtime.delete_local(&key, PinnedSkillsSource::AsRecorded, DeleteCondition::Always).await?;
            Ok(runtime.delete_remote_now(leftovers).await)
        };
        self.inner.tasks.run("the deletion of a session", deleting).await
    }

    /// Deletes the session only if it still has this many events. Otherwise the session stays, and an error is
    /// returned.
    pub(crate) async fn delete_unchanged(&self, key: SessionKey, events: u64) -> Result<(), RuntimeError> {
        let runtime = self.clone();
        let deleting = async move {
            // The janitor deletes the files that remain at a service.
            runtime
                .delete_local(&key, PinnedSkillsSource::AsRecorded, DeleteCondition::Unchanged(events))
                .await
                .map(drop)
        };
        self.inner.tasks.run("the deletion of a session", deleting).await
    }

    pub(crate) async fn delete_local(
        &self,
        key: &SessionKey,
        skills: PinnedSkillsSource,
        only: DeleteCondition,
    ) -> Result<RemoteLeftovers, RuntimeError> {
        let deadline = SystemClock.deadline(STOP_TIMEOUT);
        let records = self.session_reader().await?;
        let (pinned, profile) = match skills {
            PinnedSkillsSource::Listed(skills) => (Some(skills), None),
            PinnedSkillsSource::AsRecorded => match records.opened_profile(key).await {
                Ok(profile) => (Some(profile.skills.clone()), Some(profile)),
                // An interrupted deletion may have left the workspace.
                Err(RuntimeError::NotFound { .. }) => (Some(Vec::new()), None),
                // A session that cannot be read can be deleted.
                Err(RuntimeError::Unreadable { .. }) => (None, Some(SessionProfile::default())),
                Err(error) => return Err(error),
            },
        };
        let mut leftovers = RemoteLeftovers::default();
        match self.release_dead_lease(key, &records).await {
            Ok(()) | Err(RuntimeError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        // The search for the directory does not create it.
        let tree = &self.inner.tree;
        let mut deleting = async || -> Result<(), RuntimeError> {
            match (only, &profile) {
                // A live session is in use, even if it is only read and has no new events.
                (DeleteCondition::Unchanged(_), _) if tree.contains(key) => {
                    let reason = "the session is in use again".to_owned();
                    Err(SessionError::TakenOver { reason }.into())
                }
                (_, Some(profile))
                    if pinned.is_none() || self.may_have_remote_files(&records, key, profile).await =>
                {
                    self.delete_noted(key, profile, only, &mut leftovers, deadline).await
                }
                (DeleteCondition::Always, _) => Ok(tree.delete(key, deadline).await?),
                (DeleteCondition::Unchanged(events), _) => {
                    Ok(tree.delete_unchanged(key, events, deadline).await?)
                }
            }
        };
        let Some(home) = self.inner.factory.existing_tenant_dir(key).await? else {
            let deleted = deleting().await;
            return deleted.map(|()| leftovers);
        };
        let shared_guard = home.tenant_lock.shared(deadline).await?;
        home.set_intent(key.session).await?;
        let deleted = deleting().await;
        match deleted {
            // A session without a record may have a workspace.
            Ok(()) | Err(RuntimeError::NotFound { .. }) => self.inner.factory.forget(key, &home).await?,
            Err(error) => {
                drop(shared_guard);
                // If it is unknown whether the session was deleted, the intent record stays.
                if is_refusal(&error) {
                    cancel_intent(&home, key, &records).await;
                }
                return Err(error);
            }
        }
        drop(shared_guard);
        match unpin_skills(&home, key, pinned, &records, deadline).await {
            Ok(SkillCleanup::Done) => home.clear_intent(key.session).await,
            Ok(SkillCleanup::AtNextStart) => {}
            Err(error) => {
                tracing::warn!(session = %key, %error, "the skills of a deleted session were not unpinned; the next start does it");
            }
        }
        deleted.map(|()| leftovers)
    }
}

/// Whether it is certain that nothing was deleted: another process has the session, or it was used.
const fn is_refusal(error: &RuntimeError) -> bool {
    matches!(
        error,
        RuntimeError::Session(SessionError::TakenOver { .. })
            | RuntimeError::Journal(JournalError::Conflict { .. })
    )
}

/// Removes the intent record of a refused deletion. It stays if another runtime opens or deletes sessions of the
/// tenant, since that one may have written it, too. The next start then removes it.
async fn cancel_intent(home: &Arc<TenantDir>, key: &SessionKey, records: &SessionReader) {
    let Ok(Some(_exclusive_guard)) =
        home.tenant_lock.exclusive(SystemClock.deadline(REFUSED_LOCK_TIMEOUT)).await
    else {
        return;
    };
    // A session without events was being opened, perhaps by a process that is dead.
    if records.info(key).await.is_ok_and(|info| info.events > 0) {
        home.clear_intent(key.session).await;
    }
}

/// Removes the skills of a deleted session that no other session of the tenant has.
async fn unpin_skills(
    home: &Arc<TenantDir>,
    key: &SessionKey,
    pinned: Option<Vec<PinnedSkill>>,
    records: &SessionReader,
    deadline: Deadline,
) -> Result<SkillCleanup, RuntimeError> {
    let Some(pinned) = pinned else { return Ok(SkillCleanup::AtNextStart) };
    let mut unused: BTreeSet<Digest> = pinned.iter().map(|skill| skill.digest).collect();
    // Checked first without the lock: most skills belong to other sessions, too.
    records.without_used(&key.tenant, &mut unused).await?;
    if unused.is_empty() {
        return Ok(SkillCleanup::Done);
    }
    let Some(exclusive_guard) = home.tenant_lock.exclusive(deadline).await? else {
        return Ok(SkillCleanup::AtNextStart);
    };
    // A session that was opened meanwhile may have them.
    records.without_used(&key.tenant, &mut unused).await?;
    let home = Arc::clone(home);
    run_blocking("removing skills", move || {
        unused.iter().try_for_each(|digest| home.pins.remove(digest, &exclusive_guard))?;
        Ok(SkillCleanup::Done)
    })
    .await
}
