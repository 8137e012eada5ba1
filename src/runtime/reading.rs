//! Reading what is recorded of sessions, and what they left on the disk. Nothing is started for it.

use std::path::PathBuf;

use conjure_base::{SessionId, TenantId};
use conjure_conversation::{
    Activation, Artifact, PinnedSkill, Profile, SessionEvent, SessionEventKind, SessionFile,
};
use conjure_journal::{ListCursor, SessionKey};

use super::error::RuntimeError;
use super::handle::Runtime;
use super::outfit::blocking;
use super::records::{Records, SessionList, SessionSummary};
use crate::outputs::{ExpectedOutput, expected_outputs};
use crate::workspace::{ProducedFiles, Snapshot, Workspace};

impl Runtime {
    /// What a session was opened with, as it is recorded. Nothing is started.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] when the tenant has none of this id; when its record cannot be read.
    pub async fn profile(&self, tenant: &TenantId, id: SessionId) -> Result<Profile, RuntimeError> {
        self.records().await?.profile(&SessionKey::new(tenant.clone(), id)).await
    }

    /// Everything that a session has told, from this event on. What this process knows to be secret is redacted in it; what a
    /// session was given elsewhere, it does not know. Nothing is started.
    ///
    /// # Errors
    /// As for [`Runtime::profile`].
    pub async fn events(
        &self,
        tenant: &TenantId,
        id: SessionId,
        from_seq: u64,
    ) -> Result<Vec<SessionEvent>, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let redactor = self.inner.outfitter.redactor(&key);
        self.records().await?.events(&key, from_seq, &redactor).await
    }

    /// The tenant's sessions, the newest first, at most `limit` (1 to 1,000) of them; `after`: those that come after a former
    /// page. Of each it is read what came since a list read it last, and nothing is started.
    ///
    /// # Errors
    /// When the journal cannot be read. A session whose record cannot be read is listed as such.
    pub async fn sessions(
        &self,
        tenant: &TenantId,
        after: Option<ListCursor>,
        limit: u32,
    ) -> Result<SessionList, RuntimeError> {
        let redactor = |key: &SessionKey| self.inner.outfitter.redactor(key);
        self.records().await?.list(tenant, after, limit, redactor).await
    }

    /// One of them.
    ///
    /// # Errors
    /// As for [`Runtime::profile`].
    pub async fn summary(&self, tenant: &TenantId, id: SessionId) -> Result<SessionSummary, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let records = self.records().await?;
        let info = records.info(&key).await?;
        records.summary(&key, info, &self.inner.outfitter.redactor(&key)).await
    }

    /// The ids of all of the tenant's sessions, the newest first. None of them is read.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn session_ids(&self, tenant: &TenantId) -> Result<Vec<SessionId>, RuntimeError> {
        self.records().await?.ids(tenant).await
    }

    /// The files in a session's workspace with their sizes, as the host has them: without a sandbox, and without starting
    /// anything. Where a sandbox has a workspace of its own, on another machine, ask the session
    /// ([`Session::listing`](crate::Session::listing)).
    ///
    /// # Errors
    /// As for [`Runtime::profile`].
    pub async fn files(&self, tenant: &TenantId, id: SessionId) -> Result<ProducedFiles, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let profile = self.records().await?.profile(&key).await?;
        let Some(folder) = self.inner.outfitter.workspace(&key, &profile).await? else {
            return Ok(ProducedFiles { files: Vec::new(), complete: true });
        };
        blocking("looking at a workspace", move || {
            let workspace = Workspace::at_real_path(&folder)
                .map_err(|error| RuntimeError::Workspace { path: folder, reason: error.to_string() })?;
            Ok(workspace.produced_since(&Snapshot::default()))
        })
        .await
    }

    /// What a session has by its record: its artifacts, and the files that its turns produced. Nothing is started, and nothing fetched.
    ///
    /// # Errors
    /// As for [`Runtime::profile`].
    pub async fn belongings(
        &self,
        tenant: &TenantId,
        id: SessionId,
    ) -> Result<(Vec<Artifact>, Vec<SessionFile>), RuntimeError> {
        self.records().await?.belongings(&SessionKey::new(tenant.clone(), id)).await
    }

    /// What the session's skills say that they make, by their manifests, beside the files in its workspace: of those skills that
    /// were loaded in it, or of all where the model reads skills without loading them. Nothing is started.
    ///
    /// # Errors
    /// As for [`Runtime::profile`], and when a skill of the session is lost.
    pub async fn outputs(
        &self,
        tenant: &TenantId,
        id: SessionId,
    ) -> Result<Vec<ExpectedOutput>, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let profile = self.profile(tenant, id).await?;
        let used = match profile.activation {
            Activation::View => profile.skills.clone(),
            _ => loaded(&self.events(tenant, id, 0).await?),
        };
        if used.is_empty() {
            return Ok(Vec::new());
        }
        let home = self.inner.outfitter.tenant(&key).await?;
        let finding = move || used.iter().map(|pinned| home.pins.find(pinned)).collect::<Result<Vec<_>, _>>();
        let mut skills = blocking("looking at the manifests of skills", finding).await?;
        skills.retain(|skill| {
            skill.skill().manifest().is_some_and(|manifest| !manifest.output_files().is_empty())
        });
        let workspace = self.inner.outfitter.workspace(&key, &profile).await?;
        let Some(workspace) = workspace.filter(|_| !skills.is_empty()) else { return Ok(Vec::new()) };
        let files = self.files(tenant, id).await?;
        blocking("looking for what skills say that they make", move || {
            let skills = skills.iter().map(|skill| &**skill.skill());
            Ok(expected_outputs(skills, &profile.inputs, &workspace, &files))
        })
        .await
    }

    /// The folder on this machine that a session works in, where there is one: its own, or the host's. Nothing is started.
    ///
    /// # Errors
    /// As for [`Runtime::profile`].
    pub async fn workspace(&self, tenant: &TenantId, id: SessionId) -> Result<Option<PathBuf>, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let profile = self.records().await?.profile(&key).await?;
        self.inner.outfitter.workspace(&key, &profile).await
    }

    /// Lets the own workspace of a session that is kept in memory stay, when the session and its sandbox are over. Returns
    /// where it is; `None` where it stays anyway.
    ///
    /// # Errors
    /// When that cannot be noted on the disk; the next start removes it then.
    pub async fn keep_workspace(
        &self,
        tenant: &TenantId,
        id: SessionId,
    ) -> Result<Option<PathBuf>, RuntimeError> {
        self.inner.outfitter.keep_workspace(&SessionKey::new(tenant.clone(), id)).await
    }

    pub(super) async fn records(&self) -> Result<Records, RuntimeError> {
        Records::of(self.inner.tree.journal(), self.inner.presence.clone()).await
    }
}

/// The skills that were active at some time, in the order in which they were loaded first.
fn loaded(events: &[SessionEvent]) -> Vec<PinnedSkill> {
    let mut loaded: Vec<PinnedSkill> = Vec::new();
    for event in events {
        let SessionEventKind::SessionSkillsChanged { active_skills, .. } = &event.kind else { continue };
        let new: Vec<PinnedSkill> =
            active_skills.iter().filter(|skill| !loaded.contains(skill)).cloned().collect();
        loaded.extend(new);
    }
    loaded
}
