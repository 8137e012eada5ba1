//! Deleting a session: its record, its workspace, those of its skills that no other session has, and its files at its model's service.
//!
//! What is begun is noted on the disk before, and the note removed when all of it was done: what breaks off in between, the next
//! start completes. What it has at a service is noted before its record is removed (`remains`), and deleted there behind all else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::session::SessionError;
use conjure_base::{Clock as _, Deadline, Digest, SessionId, SystemClock, TenantId};
use conjure_conversation::{PinnedSkill, Profile};
use conjure_journal::{JournalError, SessionKey};

use super::error::RuntimeError;
use super::handle::Runtime;
use super::home::TenantHome;
use super::outfit::blocking;
use super::records::Records;
use super::remains::{Deletion, Parting};

/// How long a session may take to stop for good.
pub(super) const STOPPING: Duration = Duration::from_secs(30);

/// How long one whose deletion was refused waits for others of this process who open or delete.
const REFUSED: Duration = Duration::from_millis(500);

/// Which skills a session keeps.
pub(super) enum Kept {
    /// Its record says it, where it has one.
    AsRecorded,
    /// It may have none.
    These(Vec<PinnedSkill>),
}

/// Under which condition a session is deleted.
#[derive(Clone, Copy)]
pub(super) enum Only {
    /// Under none.
    Always,
    /// When it holds so many events, still: nobody used it since it was looked at.
    Unchanged(u64),
}

/// What is left of a deleted session's skills.
enum Left {
    Nothing,
    /// Somebody else was in the way, or it is not known which they are.
    ForTheNextStart,
}

impl Runtime {
    /// Forgets a session for ever: its record, and its own workspace. One that is live here is stopped first. It goes on when
    /// the future is dropped.
    ///
    /// Files that it has at its model's service, artifacts that it was given and what the service's tools made, are deleted there, too. No
    /// service holds up the deletion here: what it has not deleted after ten seconds is told by [`Deletion::left`], noted in the data
    /// folder, and tried again in the background until it is gone, also by later processes. Where the service refuses, or the key is not
    /// known any more, it is given up after some days and twenty tries, with a warning in the log that says what stays where.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] when the tenant has none of this id: where a deletion broke off after the record was gone, the
    /// workspace that it left is removed even so. When another process has it, or it does not stop.
    pub async fn delete(&self, tenant: &TenantId, id: SessionId) -> Result<Deletion, RuntimeError> {
        let (runtime, key) = (self.clone(), SessionKey::new(tenant.clone(), id));
        let deleting = async move {
            let parting = runtime.remove(&key, Kept::AsRecorded, Only::Always).await?;
            Ok(runtime.part(parting).await)
        };
        self.inner.work.whole("the deletion of a session", deleting).await
    }

    /// The same for a session that holds so many events, still; another one is kept, which is an error.
    pub(super) async fn delete_unchanged(&self, key: SessionKey, events: u64) -> Result<(), RuntimeError> {
        let runtime = self.clone();
        let deleting = async move {
            // The janitor looks after what it leaves at a service.
            runtime.remove(&key, Kept::AsRecorded, Only::Unchanged(events)).await.map(drop)
        };
        self.inner.work.whole("the deletion of a session", deleting).await
    }

    pub(super) async fn remove(
        &self,
        key: &SessionKey,
        kept: Kept,
        only: Only,
    ) -> Result<Parting, RuntimeError> {
        let deadline = SystemClock.deadline(STOPPING);
        let records = self.records().await?;
        let (kept, profile) = match kept {
            Kept::These(skills) => (Some(skills), None),
            Kept::AsRecorded => match records.profile(key).await {
                Ok(profile) => (Some(profile.skills.clone()), Some(profile)),
                // A deletion may have broken off: its workspace may be there even so.
                Err(RuntimeError::NotFound { .. }) => (Some(Vec::new()), None),
                // One that cannot be read can be deleted.
                Err(RuntimeError::Unreadable { .. }) => (None, Some(Profile::default())),
                Err(error) => return Err(error),
            },
        };
        let mut parting = Parting::default();
        match self.free(key, &records).await {
            Ok(()) | Err(RuntimeError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        // Asking makes none.
        let tree = &self.inner.tree;
        let mut deleting = async || -> Result<(), RuntimeError> {
            match (only, &profile) {
                // Also who only looks at it, or works with its files, uses it: no event tells of that.
                (Only::Unchanged(_), _) if tree.knows(key) => {
                    let reason = "somebody has taken it up since it was looked at".to_owned();
                    Err(SessionError::TakenOver { reason }.into())
                }
                (_, Some(profile))
                    if kept.is_none() || self.inner.outfitter.may_have_files(&key.tenant, profile) =>
                {
                    self.delete_noted(key, profile, only, &mut parting, deadline).await
                }
                (Only::Always, _) => Ok(tree.delete(key, deadline).await?),
                (Only::Unchanged(events), _) => Ok(tree.delete_unchanged(key, events, deadline).await?),
            }
        };
        let Some(home) = self.inner.outfitter.existing(key).await? else {
            let deleted = deleting().await;
            return deleted.map(|()| parting);
        };
        let pass = home.gate.pass(deadline).await?;
        home.mark(key.session).await?;
        let deleted = deleting().await;
        match deleted {
            // Also when it never was recorded, it may have a workspace.
            Ok(()) | Err(RuntimeError::NotFound { .. }) => self.inner.outfitter.forget(key, &home).await?,
            Err(error) => {
                drop(pass);
                // Whether it is gone may not be known, and then the mark stays.
                if is_refusal(&error) {
                    take_back_mark(&home, key, &records).await;
                }
                return Err(error);
            }
        }
        drop(pass);
        match unpin(&home, key, kept, &records, deadline).await {
            Ok(Left::Nothing) => home.unmark(key.session).await,
            Ok(Left::ForTheNextStart) => {}
            Err(error) => {
                tracing::warn!(session = %key, %error, "the skills of a deleted session are left to the next start");
            }
        }
        deleted.map(|()| parting)
    }
}

/// Whether nothing was deleted, for certain: somebody else has the session, or has used it.
const fn is_refusal(error: &RuntimeError) -> bool {
    matches!(
        error,
        RuntimeError::Session(SessionError::TakenOver { .. })
            | RuntimeError::Journal(JournalError::Conflict { .. })
    )
}

/// Notes that nothing of this session is under way, unless somebody else opens or deletes sessions of the tenant just now, who may
/// have set the mark, too; then it is for the next start.
async fn take_back_mark(home: &Arc<TenantHome>, key: &SessionKey, records: &Records) {
    let Ok(Some(_alone)) = home.gate.alone(SystemClock.deadline(REFUSED)).await else { return };
    // One that holds nothing was being opened by somebody who may be dead.
    if records.info(key).await.is_ok_and(|info| info.events > 0) {
        home.unmark(key.session).await;
    }
}

/// Removes those skills of a deleted session that no other session of the tenant has.
async fn unpin(
    home: &Arc<TenantHome>,
    key: &SessionKey,
    kept: Option<Vec<PinnedSkill>>,
    records: &Records,
    deadline: Deadline,
) -> Result<Left, RuntimeError> {
    let Some(kept) = kept else { return Ok(Left::ForTheNextStart) };
    let mut unused: BTreeSet<Digest> = kept.iter().map(|pinned| pinned.digest).collect();
    // Most are another session's, too, for which nobody need be kept waiting.
    records.without_used(&key.tenant, &mut unused).await?;
    if unused.is_empty() {
        return Ok(Left::Nothing);
    }
    let Some(alone) = home.gate.alone(deadline).await? else { return Ok(Left::ForTheNextStart) };
    // One that was opened meanwhile may have them.
    records.without_used(&key.tenant, &mut unused).await?;
    let home = Arc::clone(home);
    blocking("removing skills", move || {
        unused.iter().try_for_each(|digest| home.pins.remove(digest, &alone))?;
        Ok(Left::Nothing)
    })
    .await
}
