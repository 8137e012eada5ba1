//! Reads the records of sessions and the files in their workspaces. No session is started.

use std::path::PathBuf;

use conjure_base::{Redactor, SessionId, TenantId};
use conjure_conversation::{
    Artifact, PinnedSkill, SessionEvent, SessionEventKind, SessionFile, SessionProfile, SkillActivation,
};
use conjure_journal::{ListCursor, SessionKey, SessionQuery};

use crate::expected_outputs::ExpectedOutput;
use crate::expected_outputs::expected_outputs;
use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::session::readers::event_reader::{EventQuery, SessionEventPage};
use crate::runtime::session::readers::session_reader::{SessionList, SessionReader, SessionSummary};
use crate::runtime::task_set::run_blocking;
use crate::workspace::{ProducedFiles, SessionWorkspace, WorkspaceSnapshot};

impl Runtime {
    /// The recorded profile of a session: the one that it was opened with, but with its current model. The session is
    /// not started.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::NotFound`] if the tenant has no session of this id; an error if its record cannot be read.
    pub async fn profile(&self, tenant: &TenantId, id: SessionId) -> Result<SessionProfile, RuntimeError> {
        self.session_reader().await?.profile(&SessionKey::new(tenant.clone(), id)).await
    }

    /// All events of a session from this number on, each once. The session is not started.
    ///
    /// Secrets that this process knows are redacted. Secrets that the session got in another process are not known
    /// here.
    ///
    /// # Errors
    ///
    /// As for [`Runtime::profile`].
    pub async fn events(
        &self,
        tenant: &TenantId,
        id: SessionId,
        from_seq: u64,
    ) -> Result<Vec<SessionEvent>, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let redactor = self.inner.factory.redactor(&key);
        self.session_reader().await?.events(&key, from_seq, &redactor).await
    }

    /// The redactor for those secrets of a session that this process knows. It is for texts that its commands choose, such
    /// as the names of files.
    #[must_use]
    pub fn redactor(&self, tenant: &TenantId, id: SessionId) -> Redactor {
        self.inner.factory.redactor(&SessionKey::new(tenant.clone(), id))
    }

    /// A page of a session's events. The cost depends on the size of the page, and not on its position. Secrets are
    /// redacted as by [`Runtime::events`]. The session is not started.
    ///
    /// # Errors
    ///
    /// As for [`Runtime::profile`].
    pub async fn event_page(
        &self,
        tenant: &TenantId,
        id: SessionId,
        query: EventQuery,
    ) -> Result<SessionEventPage, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let redactor = self.inner.factory.redactor(&key);
        self.session_reader().await?.event_page(&key, query, &redactor).await
    }

    /// The tenant's sessions, the newest first, at most `limit` (1 to 1,000). `after` continues after an earlier page.
    /// No session is started. Events are read only for sessions that an earlier version has recorded.
    ///
    /// # Errors
    ///
    /// If the journal cannot be read. A session whose record cannot be read is no error: the list marks it as
    /// unreadable.
    pub async fn sessions(
        &self,
        tenant: &TenantId,
        after: Option<ListCursor>,
        limit: u32,
    ) -> Result<SessionList, RuntimeError> {
        self.query_sessions(tenant, SessionQuery { after, limit, ..SessionQuery::default() }).await
    }

    /// The tenant's sessions that match a query. A session that an earlier version has recorded has no status, until it
    /// is used or listed without a status in the query.
    ///
    /// # Errors
    ///
    /// As for [`Runtime::sessions`].
    pub async fn query_sessions(
        &self,
        tenant: &TenantId,
        query: SessionQuery,
    ) -> Result<SessionList, RuntimeError> {
        let redactor = |key: &SessionKey| self.inner.factory.redactor(key);
        self.session_reader().await?.list(tenant, query, redactor).await
    }

    /// The summary of one session.
    ///
    /// # Errors
    ///
    /// As for [`Runtime::profile`].
    pub async fn summary(&self, tenant: &TenantId, id: SessionId) -> Result<SessionSummary, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let records = self.session_reader().await?;
        let info = records.info(&key).await?;
        records.summary(&key, info, &self.inner.factory.redactor(&key)).await
    }

    /// The ids of all sessions of the tenant, the newest first. No record is read.
    ///
    /// # Errors
    ///
    /// If the journal cannot be read.
    pub async fn session_ids(&self, tenant: &TenantId) -> Result<Vec<SessionId>, RuntimeError> {
        self.session_reader().await?.ids(tenant).await
    }

    /// The files in a session's workspace on this machine, with their sizes. The session is not started. If the sandbox
    /// has a workspace of its own on another machine, ask the session
    /// ([`Session::list_files`](conjure_actors::session::Session::list_files)).
    ///
    /// # Errors
    ///
    /// As for [`Runtime::profile`].
    pub async fn files(&self, tenant: &TenantId, id: SessionId) -> Result<ProducedFiles, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let profile = self.session_reader().await?.opened_profile(&key).await?;
        let Some(dir) = self.inner.factory.workspace(&key, &profile).await? else {
            return Ok(ProducedFiles { files: Vec::new(), complete: true });
        };
        run_blocking("looking at a workspace", move || {
            let workspace = SessionWorkspace::at_real_path(&dir)
                .map_err(|error| RuntimeError::Workspace { path: dir, reason: error.to_string() })?;
            Ok(workspace.produced_since(&WorkspaceSnapshot::default()))
        })
        .await
    }

    /// The recorded artifacts of a session, and the files that its turns produced. The session is not started, and
    /// nothing is fetched.
    ///
    /// # Errors
    ///
    /// As for [`Runtime::profile`].
    pub async fn artifacts_and_files(
        &self,
        tenant: &TenantId,
        id: SessionId,
    ) -> Result<(Vec<Artifact>, Vec<SessionFile>), RuntimeError> {
        self.session_reader().await?.artifacts_and_files(&SessionKey::new(tenant.clone(), id)).await
    }

    /// The outputs that the manifests of the session's skills declare, compared with the files in its workspace. It
    /// includes the skills that were loaded, or all skills if the model reads skills without loading them. The session
    /// is not started.
    ///
    /// # Errors
    ///
    /// As for [`Runtime::profile`], and if a skill of the session is lost.
    pub async fn outputs(
        &self,
        tenant: &TenantId,
        id: SessionId,
    ) -> Result<Vec<ExpectedOutput>, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let profile = self.profile(tenant, id).await?;
        let used = match profile.activation {
            SkillActivation::View => profile.skills.clone(),
            _ => loaded(&self.events(tenant, id, 0).await?),
        };
        if used.is_empty() {
            return Ok(Vec::new());
        }
        let home = self.inner.factory.tenant_dir(&key.tenant).await?;
        let finding = move || used.iter().map(|pinned| home.pins.find(pinned)).collect::<Result<Vec<_>, _>>();
        let mut skills = run_blocking("reading the manifests of skills", finding).await?;
        skills.retain(|skill| {
            skill.skill().manifest().is_some_and(|manifest| !manifest.output_files().is_empty())
        });
        let workspace = self.inner.factory.workspace(&key, &profile).await?;
        let Some(workspace) = workspace.filter(|_| !skills.is_empty()) else { return Ok(Vec::new()) };
        let files = self.files(tenant, id).await?;
        run_blocking("looking for declared outputs", move || {
            let skills = skills.iter().map(|skill| &**skill.skill());
            Ok(expected_outputs(skills, &profile.inputs, &workspace, &files))
        })
        .await
    }

    /// The directory on this machine that a session works in, if there is one: its own, or the embedder's. The session is
    /// not started.
    ///
    /// # Errors
    ///
    /// As for [`Runtime::profile`].
    pub async fn workspace(&self, tenant: &TenantId, id: SessionId) -> Result<Option<PathBuf>, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let profile = self.session_reader().await?.opened_profile(&key).await?;
        self.inner.factory.workspace(&key, &profile).await
    }

    /// For a session in memory, keeps its own workspace after the session and its sandbox end. Returns the path of the
    /// workspace, or `None` if it stays anyway.
    ///
    /// # Errors
    ///
    /// If this cannot be recorded on the disk. The next start then removes the workspace.
    pub async fn keep_workspace(
        &self,
        tenant: &TenantId,
        id: SessionId,
    ) -> Result<Option<PathBuf>, RuntimeError> {
        self.inner.factory.keep_workspace(&SessionKey::new(tenant.clone(), id)).await
    }

    pub(crate) async fn session_reader(&self) -> Result<SessionReader, RuntimeError> {
        SessionReader::open(self.inner.tree.journal(), self.inner.process_lock.clone()).await
    }
}

/// The skills that were ever active, in the order in which they were first loaded.
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
