//! What the factory keeps of sessions in addition to their event logs: secrets, prepared parts and temporary workspaces.
//!
//! State, in memory: one entry for each such session. It is removed with the session, and lost when the process ends.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_base::{Redactor, TenantId};
use conjure_conversation::SessionProfile;
use conjure_journal::SessionKey;

use crate::context::{ContextOptions, redactor_with};
use crate::runtime::data::artifact_pins::remove_pins;
use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::options::JournalLocation;
use crate::runtime::session::factory::session_factory::RuntimeSessionFactory;
use crate::runtime::session::input::session_secrets::{CompleteSecrets, SessionSecrets};
use crate::runtime::session::readers::known_session::VolatileSessionState;
use crate::runtime::task_set::run_blocking;

impl RuntimeSessionFactory {
    /// Stores the secrets of a session, merged over the earlier ones. Returns the earlier ones.
    pub(crate) fn set_secrets(&self, key: &SessionKey, given: SessionSecrets) -> SessionSecrets {
        let mut sessions = self.inner.sessions();
        let known = sessions.entry(key.clone()).or_default();
        let given = given.merged_over(&known.secrets);
        std::mem::replace(&mut known.secrets, given)
    }

    /// Restores the earlier secrets of a session, after the new ones turned out to be unusable.
    pub(crate) fn restore_secrets(&self, key: &SessionKey, before: SessionSecrets) {
        self.inner.sessions().entry(key.clone()).or_default().secrets = before;
    }

    /// Copies the secrets of a session for its fork.
    pub(crate) fn copy_secrets(&self, from: &SessionKey, to: &SessionKey) {
        let known = self.inner.sessions().get(from).map(|known| known.secrets.clone());
        if let Some(secrets) = known {
            self.set_secrets(to, secrets);
        }
    }

    /// The redactor for those secrets of a session that this process knows.
    pub(crate) fn redactor(&self, key: &SessionKey) -> Redactor {
        let known = self.inner.sessions().get(key).map(|known| known.secrets.clone()).unwrap_or_default();
        let CompleteSecrets { environment, secrets } = known.into_complete();
        let options = ContextOptions { environment, secrets, ..ContextOptions::default() };
        let redactor = redactor_with(&options, &self.inner.models.secrets(&self.inner.config));
        redactor.extend(&self.inner.sandboxes.policies().policy(&key.tenant).redactor());
        redactor
    }

    /// The directory that a session works in, if it exists.
    pub(crate) async fn workspace(
        &self,
        key: &SessionKey,
        profile: &SessionProfile,
    ) -> Result<Option<PathBuf>, RuntimeError> {
        if let Some(dir) = &profile.workspace {
            return Ok(Some(dir.clone()));
        }
        if let Some(known) = self.inner.sessions().get(key).and_then(|known| known.workspace.clone()) {
            return Ok(Some(known.path().to_owned()));
        }
        let (inner, key) = (Arc::clone(&self.inner), key.clone());
        run_blocking("looking for a workspace", move || match inner.record {
            JournalLocation::InMemory => Ok(None),
            JournalLocation::OnDisk => inner.own_workspace(&key, &*inner.home.tenant(&key.tenant)?).map(Some),
        })
        .await
    }

    /// Keeps a temporary workspace beyond the end of this process, and returns its path.
    pub(crate) async fn keep_workspace(&self, key: &SessionKey) -> Result<Option<PathBuf>, RuntimeError> {
        let known = self.inner.sessions().get_mut(key).and_then(|known| known.workspace.take());
        let Some(workspace) = known.and_then(Arc::into_inner) else { return Ok(None) };
        let home = Arc::clone(&self.inner.home);
        let keeping = move || {
            let kept = workspace.keep().map_err(|error| RuntimeError::Sandbox(error.into()))?;
            home.keep();
            Ok(Some(kept))
        };
        run_blocking("keeping a workspace", keeping).await
    }

    /// Removes the secrets of a deleted session, and its own workspace on the disk.
    pub(crate) async fn forget(&self, key: &SessionKey, home: &Arc<TenantDir>) -> Result<(), RuntimeError> {
        let known = self.inner.sessions().remove(key);
        let (record, home, session) = (self.inner.record, Arc::clone(home), key.session);
        run_blocking("the removal of a workspace", move || {
            // Dropping the entry also removes its workspace, if that ends with this process.
            drop(known);
            if record == JournalLocation::InMemory {
                return Ok(());
            }
            remove_pins(&home, session)?;
            let removed = home.data.remove_workspace(&session.stored_name());
            removed.map(drop).map_err(|error| RuntimeError::Sandbox(error.into()))
        })
        .await
    }

    /// Forgets the sessions of a deleted tenant. Workspaces that end with this process are removed.
    pub(crate) async fn forget_tenant(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        let inner = Arc::clone(&self.inner);
        let tenant = tenant.clone();
        run_blocking("forgetting a tenant", move || {
            let mut sessions = inner.sessions();
            let (removed, remaining) =
                std::mem::take(&mut *sessions).into_iter().partition(|(key, _)| key.tenant == tenant);
            *sessions = remaining;
            drop(sessions);
            let removed: HashMap<SessionKey, VolatileSessionState> = removed;
            drop(removed);
            inner.sandboxes.disk_usage().forget(&tenant);
            if let Some(artifacts) = &inner.artifacts {
                artifacts.forget(&tenant);
            }
            Ok(())
        })
        .await
    }
}
