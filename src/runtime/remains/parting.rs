//! Deleting the records of sessions that have something at a service, and what they have there, as far as a caller waits for it.
//!
//! State: none but the notes. Each is on the disk before the record goes.

use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock, TenantId};
use conjure_conversation::Profile;
use conjure_journal::{JournalError, SessionKey};

use super::super::deleting::{Only, STOPPING};
use super::super::error::RuntimeError;
use super::super::handle::Runtime;
use super::super::records::Records;
use super::carrying::{Carried, Silent, carry};
use super::found::{Found, files_of, is_damage};
use super::noted::{FilesLeft, Remains};
use super::report::{Deletion, LeftAtService, SkillFate, SkillsAtService};

/// How long a caller waits for a service that is to delete files: what is left then is deleted in the background.
const AT_SERVICE: Duration = Duration::from_secs(10);

/// How many sessions of a tenant are noted together.
const TOGETHER: usize = 256;

/// How often what a session has at its service is looked up again, because the session went on meanwhile.
const LOOKS: u32 = 8;

/// What a deletion leaves at services.
#[derive(Debug, Default)]
pub(crate) struct Parting {
    /// The notes of what is to be deleted there.
    pub(crate) noted: Vec<String>,
    /// Sessions of which that is not known.
    pub(crate) unknown: Vec<LeftAtService>,
    /// Skills that stay.
    pub(crate) kept: Vec<SkillsAtService>,
}

impl Runtime {
    /// Deletes at services what these notes say, for a moment: what is left.
    pub(crate) async fn part(&self, parting: Parting) -> Deletion {
        let deadline = SystemClock.deadline(AT_SERVICE);
        let mut deletion = Deletion { left: parting.unknown, skills: parting.kept };
        let mut silent = Silent::default();
        for name in parting.noted {
            loop {
                let carried = tokio::select! {
                    biased;
                    () = self.inner.work.closing() => {
                        carry(self, &name, &mut Silent::default(), SystemClock.deadline(Duration::ZERO)).await
                    }
                    carried = carry(self, &name, &mut silent, deadline) => carried,
                };
                match carried {
                    Ok(Carried { gone, failure: None, is_skipped: false, left, .. })
                        if gone > 0 && !left.is_empty() =>
                    {
                        continue;
                    }
                    Ok(carried) => {
                        deletion.left.extend(carried.left);
                        deletion.skills.extend(carried.skills);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "what deleted sessions have at services is left to the janitor");
                        // It cannot be read what it is.
                        let reason = error.to_string();
                        match name.parse() {
                            Ok(session) => deletion.left.push(LeftAtService {
                                session,
                                model: None,
                                service: None,
                                files: Vec::new(),
                                reason,
                            }),
                            Err(_) => deletion.skills.push(SkillsAtService {
                                service: "its model's service".to_owned(),
                                skills: Vec::new(),
                                fate: SkillFate::Later,
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

    /// Deletes the record of a session, behind a note of the files that it names: of all of them, or it is not deleted. The note of one
    /// that is not deleted stays, since somebody else may delete the session just now and rely on it: it counts for nothing as long as
    /// the session is recorded.
    pub(in crate::runtime) async fn delete_noted(
        &self,
        key: &SessionKey,
        profile: &Profile,
        only: Only,
        parting: &mut Parting,
        deadline: Deadline,
    ) -> Result<(), RuntimeError> {
        let (tree, records) = (&self.inner.tree, self.records().await?);
        for _ in 0..LOOKS {
            if let Only::Always = only {
                tree.stop(key, deadline).await?;
            }
            let (left, found) = self.look(&records, key, profile).await?;
            parting.unknown =
                found.unreadable.map(|reason| unknown(key, profile, reason)).into_iter().collect();
            let remains =
                Remains::new(key.tenant.clone(), SystemClock.timestamp(), left.into_iter().collect());
            parting.noted = self.inner.remains.put(remains).await?.into_iter().collect();
            tracing::trace!(session = %key, "what a session has at its service is noted");
            // However long it took to read its record.
            let deadline = SystemClock.deadline(STOPPING);
            let events = match only {
                Only::Unchanged(events) => events,
                Only::Always => found.events,
            };
            match tree.delete_unchanged(key, events, deadline).await.map_err(RuntimeError::from) {
                // Somebody has a handle, and used it since.
                Err(RuntimeError::Journal(JournalError::Conflict { .. })) if matches!(only, Only::Always) => {
                }
                deleted => return deleted,
            }
        }
        // It goes as it is by now. What was recorded behind the last look is in no note.
        tree.delete(key, deadline).await?;
        let reason = format!("the session was used each of the {LOOKS} times that its record was read");
        parting.unknown.push(unknown(key, profile, reason));
        Ok(())
    }

    /// Notes what all sessions of a tenant have at services, who go with it.
    pub(crate) async fn note_all(
        &self,
        tenant: &TenantId,
        parting: &mut Parting,
    ) -> Result<(), RuntimeError> {
        let (records, outfitter) = (self.records().await?, &self.inner.outfitter);
        let mut together = Vec::new();
        for session in records.ids(tenant).await? {
            let key = SessionKey::new(tenant.clone(), session);
            let profile = match records.profile(&key).await {
                Ok(profile) if outfitter.may_have_files(tenant, &profile) => profile,
                Ok(_) | Err(RuntimeError::NotFound { .. }) => continue,
                Err(RuntimeError::Unreadable { .. }) => Profile::default(),
                Err(RuntimeError::Journal(error)) if is_damage(&error) => Profile::default(),
                Err(error) => return Err(error),
            };
            let (left, found) = self.look(&records, &key, &profile).await?;
            parting.unknown.extend(found.unreadable.map(|reason| unknown(&key, &profile, reason)));
            together.extend(left);
            if together.len() >= TOGETHER {
                self.note(tenant, &mut together).await?;
            }
        }
        self.note(tenant, &mut together).await?;
        tracing::trace!(%tenant, "what a tenant has at services is noted");
        // Also what sessions left that were deleted before, and a deletion of the tenant that broke off.
        parting.noted = self.inner.remains.of_tenant(tenant).await?;
        Ok(())
    }

    /// Notes what these sessions have.
    async fn note(&self, tenant: &TenantId, together: &mut Vec<FilesLeft>) -> Result<(), RuntimeError> {
        let left = std::mem::take(together);
        let remains = Remains::new(tenant.clone(), SystemClock.timestamp(), left);
        self.inner.remains.put(remains).await.map(drop)
    }

    /// What a session has at its model's service, and what its record holds.
    pub(crate) async fn look(
        &self,
        records: &Records,
        key: &SessionKey,
        profile: &Profile,
    ) -> Result<(Option<FilesLeft>, Found), RuntimeError> {
        let removal = self.inner.outfitter.removal(&key.tenant, profile.model.as_deref()).ok();
        let mut found = files_of(records, key, removal.as_ref()).await?;
        let left = FilesLeft {
            session: key.session,
            model: profile.model.clone(),
            account: removal.map(|removal| removal.account().into()),
            files: std::mem::take(&mut found.files),
        };
        Ok((Some(left).filter(|left| !left.files.is_empty()), found))
    }
}

/// Of a session whose record cannot be read.
pub(crate) fn unknown(key: &SessionKey, profile: &Profile, reason: String) -> LeftAtService {
    tracing::warn!(session = %key, reason, "which files a deleted session may have at its model's service is not known, and they stay there");
    LeftAtService {
        session: key.session,
        model: profile.model.clone(),
        service: None,
        files: Vec::new(),
        reason,
    }
}
