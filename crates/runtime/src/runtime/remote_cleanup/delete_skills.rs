//! Deletes skills that were uploaded for a deleted tenant, if only this tenant has the key. The upload index lists the
//! skills under that key.
//!
//! - A note is written before the skills are removed from the index.
//! - The skills are deleted after everything of the tenant is deleted here.
//! - A skill that is in the index again was uploaded again under that name, and stays.
//! - The index is locked while it is checked and a skill is deleted, so that no upload happens meanwhile.

use std::collections::BTreeSet;

use conjure_anthropic::hosted::{
    ForgetOutcome, HostedErrorKind, HostedFileDeletion, SkillId, SkillSync, SyncError,
};
use conjure_artifact::ServiceFileDeletion as _;
use conjure_base::{Clock as _, Deadline, SystemClock, TenantId};

use crate::anthropic::Client;
use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::options::JournalLocation;
use crate::runtime::remote_cleanup::batch_result::{
    BatchResult, DELETE_TIMEOUT, DeleteResult, MAX_FAILURES, NO_TIME, note_lock_timeout,
};
use crate::runtime::remote_cleanup::cleanup_note::{CleanupNote, ServiceAccountRef, SkillsToDelete};
use crate::runtime::remote_cleanup::deletion_report::{RemainingSkills, RemoteSkillOutcome};
use crate::runtime::remote_cleanup::on_delete::RemoteLeftovers;
use crate::runtime::remote_cleanup::on_delete::STOP_TIMEOUT;
use crate::runtime::tenants::TenantKey;

impl Runtime {
    /// Writes the skills of a deleted tenant to a note, and removes them from the upload index.
    pub(crate) async fn note_skills(
        &self,
        tenant: &TenantId,
        leftovers: &mut RemoteLeftovers,
    ) -> Result<(), RuntimeError> {
        if self.inner.factory.home.record() == JournalLocation::InMemory {
            // A runtime in memory does not change the upload index when a tenant is deleted.
            return Ok(());
        }
        let (client, is_exclusive) = match self.inner.factory.sandboxes.policies().tenant_key(tenant) {
            TenantKey::None => return Ok(()),
            TenantKey::Shared(client) => (client, false),
            TenantKey::Exclusive(client) => (client, true),
        };
        let account = account_of(&client);
        let mut stay = |ids: &BTreeSet<String>, reason: String| {
            leftovers.kept_skills.push(RemainingSkills {
                service: account.service.clone(),
                skills: ids.iter().cloned().collect(),
                outcome: RemoteSkillOutcome::Kept,
                reason,
            });
        };
        let sync = self.skill_sync(&client);
        let ids: BTreeSet<String> = match sync.uploaded_skills().await {
            Ok(known) => known.into_values().map(|id| id.as_str().to_owned()).collect(),
            Err(error) => {
                stay(&BTreeSet::new(), error.to_string());
                return Ok(());
            }
        };
        if ids.is_empty() {
            return Ok(());
        }
        if !is_exclusive {
            stay(&ids, "others have the same key".to_owned());
            return Ok(());
        }
        let skills = SkillsToDelete { account: account.clone(), ids: ids.iter().cloned().collect() };
        let note = CleanupNote::for_skills(tenant.clone(), SystemClock.timestamp(), skills);
        let name = self.inner.notes.put(note).await?;
        if let Err(error) = sync.forget(ids.iter().map(|id| SkillId::new(id.as_str())).collect()).await {
            // The skills are still in the index and would count as uploaded again, so they leave the note.
            let taken = ids.clone();
            self.forget_skills(&name.unwrap_or_default(), taken).await?;
            stay(&ids, error.to_string());
        }
        Ok(())
    }

    fn skill_sync(&self, client: &Client) -> SkillSync {
        SkillSync::new(client.skills(), self.inner.factory.home.path().join("hosted"))
    }

    async fn forget_skills(&self, name: &str, ids: BTreeSet<String>) -> Result<(), RuntimeError> {
        let drop = move |note: &mut CleanupNote| {
            if let Some(skills) = &mut note.skills {
                skills.ids.retain(|id| !ids.contains(id));
            }
        };
        self.inner.notes.update(name, SystemClock.deadline(STOP_TIMEOUT), drop).await
    }
}

fn account_of(client: &Client) -> ServiceAccountRef {
    HostedFileDeletion::new(client.files()).account().into()
}

/// Deletes the skills of a note.
pub(super) async fn process_skills(
    runtime: &Runtime,
    name: &str,
    note: &CleanupNote,
    skills: &SkillsToDelete,
    deadline: Deadline,
) -> Result<BatchResult, RuntimeError> {
    let factory = &runtime.inner.factory;
    if factory.check_tenant(&note.tenant).await.is_err() {
        // The tenant's deletion is still running here, and may need to find the skills again.
        return Ok(BatchResult::default());
    }
    let client = match factory.sandboxes.policies().tenant_key(&note.tenant) {
        TenantKey::Exclusive(client) => Some(client),
        // Another user of the same key may need the skills.
        TenantKey::Shared(_) | TenantKey::None => None,
    };
    let client = client.filter(|client| account_of(client) == skills.account);
    let tried = match client {
        None => {
            let reason =
                "the key that they were uploaded under is not known any more, or not the tenant's alone";
            DeleteResult::default().all_refused(&skills.ids, reason.to_owned())
        }
        Some(client) => delete_batch(&runtime.skill_sync(&client), skills, deadline).await,
    };
    Ok(record_result(runtime, name, note, skills, tried, deadline).await)
}

/// Why a skill was not deleted.
enum SkillDeleteError {
    /// The deletion of this skill failed, and may succeed later.
    Temporary(String),
    /// The service refuses.
    Refused(String),
    /// The upload index cannot be read. Without it nothing is deleted, since skills may have been uploaded again.
    Record(String),
}

async fn delete_batch(sync: &SkillSync, skills: &SkillsToDelete, deadline: Deadline) -> DeleteResult {
    let mut tried = DeleteResult::default();
    let mut failures = 0;
    for id in &skills.ids {
        if failures == MAX_FAILURES || SystemClock.remaining(deadline).is_zero() {
            break;
        }
        failures = match delete(sync, id, deadline).await {
            Ok(()) => {
                tried.deleted.insert(id.clone());
                0
            }
            Err(SkillDeleteError::Refused(reason)) => {
                tried.refused(id, reason);
                0
            }
            Err(SkillDeleteError::Temporary(reason)) => {
                tried.retryable(id, reason);
                failures + 1
            }
            Err(SkillDeleteError::Record(reason)) => {
                tried.retry_reason = Some(reason);
                break;
            }
        };
    }
    tried
}

/// Deletes a skill that is not in the upload index. A skill that was uploaded again stays at the service, and also
/// counts as done.
async fn delete(sync: &SkillSync, id: &str, deadline: Deadline) -> Result<(), SkillDeleteError> {
    use HostedErrorKind as Kind;
    let id = SkillId::new(id);
    let deadline = SystemClock.deadline(DELETE_TIMEOUT).min(deadline);
    let deleted = tokio::select! {
        biased;
        deleted = sync.delete_forgotten(&id) => deleted,
        () = SystemClock.sleep_until(deadline) => {
            return Err(SkillDeleteError::Temporary("the service did not answer in time".to_owned()));
        }
    };
    match deleted {
        Ok(ForgetOutcome::Deleted | ForgetOutcome::Remembered) => Ok(()),
        Err(SyncError::Service(error)) => Err(match error.kind() {
            Kind::WrongKey | Kind::Forbidden | Kind::Refused | Kind::InvalidId => {
                SkillDeleteError::Refused(error.to_string())
            }
            _ => SkillDeleteError::Temporary(error.to_string()),
        }),
        // For example, a push is running and may be about to add the skill to the index.
        Err(error) => Err(SkillDeleteError::Record(error.to_string())),
    }
}

/// Writes the result to the note.
async fn record_result(
    runtime: &Runtime,
    name: &str,
    note: &CleanupNote,
    skills: &SkillsToDelete,
    tried: DeleteResult,
    deadline: Deadline,
) -> BatchResult {
    let DeleteResult { deleted, refused, refusal_reason, retryable, retry_reason, .. } = tried;
    let is_refused = !refused.is_empty();
    let given_up = if is_refused && note.is_given_up(SystemClock.timestamp()) {
        refused.clone()
    } else {
        BTreeSet::new()
    };
    let service = &skills.account.service;
    let remaining = |outcome: RemoteSkillOutcome, reason: Option<&String>| {
        let ids = skills.ids.iter().filter(|id| !deleted.contains(*id));
        let ids: Vec<String> = ids
            .filter(|id| given_up.contains(*id) == (outcome == RemoteSkillOutcome::Kept))
            .cloned()
            .collect();
        let reason = reason.map_or(NO_TIME, String::as_str).to_owned();
        (!ids.is_empty()).then(|| RemainingSkills { service: service.clone(), skills: ids, outcome, reason })
    };
    if !given_up.is_empty() {
        let (tenant, reason) = (&note.tenant, refusal_reason.as_deref().unwrap_or_default());
        tracing::warn!(
            %tenant, service, skills = ?given_up, reason,
            "the service refuses to delete skills of a deleted tenant; they stay there unless they are deleted by hand"
        );
    }
    let stay = remaining(RemoteSkillOutcome::Kept, refusal_reason.as_ref());
    let later =
        remaining(RemoteSkillOutcome::DeletedLater, retry_reason.as_ref().or(refusal_reason.as_ref()));
    let mut batch = BatchResult {
        deleted: deleted.len() as u64,
        skills: stay.into_iter().chain(later).collect(),
        failure: retry_reason.or(refusal_reason),
        ..BatchResult::default()
    };
    let changed = move |note: &mut CleanupNote| {
        note.refusals += u32::from(is_refused);
        if let Some(skills) = &mut note.skills {
            skills.ids.retain(|id| !deleted.contains(id) && !given_up.contains(id));
            // Skills that failed come after the others.
            skills.ids.sort_by_key(|id| refused.contains(id) || retryable.contains(id));
        }
    };
    if let Err(error) = runtime.inner.notes.update(name, note_lock_timeout(deadline), changed).await {
        batch.failure = Some(error.to_string());
    }
    batch
}
