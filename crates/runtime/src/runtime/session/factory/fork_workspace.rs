//! What a fork gets in addition to its event log: a copy of the workspace, and links to the contents of its artifacts.
//!
//! State: the copy and the links, in the usual places of every session. After a crash, the next start removes those that
//! belong to no session (`recover_intents`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_conversation::{ArtifactContent, SessionProfile};
use conjure_journal::{Epoch, SessionKey};
use tokio_util::sync::CancellationToken;

use crate::config::ExecutorKind;
use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::options::JournalLocation;
use crate::runtime::session::factory::session_factory::RuntimeSessionFactory;
use crate::runtime::session::spec::NO_SANDBOX;
use crate::runtime::task_set::run_blocking;
use crate::workspace::copy_tree;
use crate::workspace::{CopyBounds, CopyError, open_real};

impl RuntimeSessionFactory {
    /// Copies the session's own workspace for its fork. It copies nothing if the session has no workspace. It copies
    /// nothing either if the session works in a directory of the embedder, because the fork works in the same directory.
    pub(crate) async fn fork_workspace(
        &self,
        from: &SessionKey,
        to: &SessionKey,
        home: &Arc<TenantDir>,
        profile: &SessionProfile,
    ) -> Result<(), RuntimeError> {
        if profile.workspace.is_some() || profile.executor.as_deref() == Some(NO_SANDBOX) {
            return Ok(());
        }
        let record = self.inner.record;
        // Keeps a temporary workspace alive until the copy is complete.
        let workspace_guard = self.inner.sessions().get(from).and_then(|known| known.workspace.clone());
        if record == JournalLocation::InMemory && workspace_guard.is_none() {
            return Ok(());
        }
        let (inner, home, original) = (Arc::clone(&self.inner), Arc::clone(home), from.clone());
        let find_workspace = move || inner.own_workspace(&original, &home);
        let source = run_blocking("looking for a workspace", find_workspace).await?;
        let _reserved = self.inner.sandboxes.disk_usage().reserve_copy(&from.tenant, &source).await?;
        // Cancels the copy when this future is dropped.
        let cancel = CancellationToken::new();
        let _guard = cancel.clone().drop_guard();
        let (inner, to) = (Arc::clone(&self.inner), to.clone());
        let home = self.tenant_dir(&from.tenant).await?;
        run_blocking("the copy of a workspace", move || {
            let target = inner.own_workspace(&to, &home)?;
            let copied = copy_workspace(&source, &target, record, &cancel);
            drop(workspace_guard);
            copied
        })
        .await
    }

    /// The path of a fork's own workspace, if its commands know it by its path on this machine. The fork's parts must be
    /// prepared.
    pub(crate) fn host_workspace(&self, key: &SessionKey, profile: &SessionProfile) -> Option<PathBuf> {
        let executor = profile.executor.as_deref().unwrap_or_else(|| self.inner.config.executor().as_str());
        let is_local = executor == ExecutorKind::Local.as_str() && profile.workspace.is_none();
        let sessions = self.inner.sessions();
        let parts = sessions.get(key).filter(|_| is_local)?.parts.as_ref()?;
        parts.workspace.clone()
    }

    /// Links the contents of a fork's artifacts. This happens before the event log says that the fork has them. The
    /// fork's parts must be prepared.
    pub(crate) async fn pin_artifacts(
        &self,
        key: &SessionKey,
        contents: Vec<ArtifactContent>,
    ) -> Result<(), RuntimeError> {
        let pinner = self.inner.sessions().get(key).and_then(|known| {
            let artifacts = known.parts.as_ref()?.artifacts.as_ref()?;
            Some(Arc::clone(&artifacts.pinner))
        });
        let Some(pinner) = pinner.filter(|_| !contents.is_empty()) else { return Ok(()) };
        // The fork's first start makes links with a later epoch.
        let pinned = pinner.retain(Epoch::NONE, contents).await;
        pinned.map_err(|error| RuntimeError::interrupted("linking the contents of artifacts", &error))
    }
}

/// Copies the directory. Blocks.
fn copy_workspace(
    source: &Path,
    target: &Path,
    record: JournalLocation,
    cancel: &CancellationToken,
) -> Result<(), RuntimeError> {
    let refused = |path: &Path, reason: String| RuntimeError::Workspace { path: path.to_owned(), reason };
    let open = |path: &Path| open_real(path).map_err(|error| refused(path, error.to_string()));
    let (from, to) = (open(source)?, open(target)?);
    let target_dir = to.try_clone().map_err(|error| refused(target, error.to_string()))?;
    copy_tree(from, to, CopyBounds::default(), cancel).map_err(|CopyError { path, reason }| {
        let path: PathBuf = if path.as_os_str().is_empty() { source.to_owned() } else { source.join(path) };
        refused(&path, format!("it cannot be copied: {reason}"))
    })?;
    if record == JournalLocation::OnDisk {
        // The fork's event log is durable, so its files must be, too.
        rustix::fs::syncfs(target_dir)
            .map_err(|errno| refused(target, std::io::Error::from(errno).to_string()))?;
    }
    Ok(())
}
