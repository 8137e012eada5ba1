//! Finds a session that was opened before, by this process or by another process that may have died.

use std::time::Duration;

use conjure_actors::session::{Session, SessionError};
use conjure_base::{SessionId, TenantId};
use conjure_journal::SessionKey;

use crate::runtime::error::RuntimeError;
use crate::runtime::handle::{Runtime, RuntimeInner};
use crate::runtime::session::input::session_secrets::SessionSecrets;
use crate::runtime::session::readers::session_reader::SessionReader;

impl Runtime {
    /// Returns a session that was opened before, here or by another process. An unfinished turn is resumed.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::NotFound`] if the tenant has no session of this id. [`RuntimeError::MissingSecrets`] if it was
    /// opened with secrets, which are not recorded: see [`Runtime::session_with`]. A
    /// [`SessionError`](conjure_actors::session::SessionError) if another process has it.
    pub async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Session, RuntimeError> {
        self.session_with(tenant, id, SessionSecrets::default()).await
    }

    /// Returns the session, and gives it the secrets and inputs that are not recorded. If the session is live already,
    /// it uses them from its next start on. They are redacted at once, also for current subscribers.
    ///
    /// # Errors
    ///
    /// As for [`Runtime::session`].
    pub async fn session_with(
        &self,
        tenant: &TenantId,
        id: SessionId,
        given: SessionSecrets,
    ) -> Result<Session, RuntimeError> {
        let (runtime, key) = (self.clone(), SessionKey::new(tenant.clone(), id));
        let finding = async move { runtime.find_tracked(&key, given).await };
        self.inner.tasks.run("the finding of a session", finding).await
    }

    async fn find_tracked(&self, key: &SessionKey, given: SessionSecrets) -> Result<Session, RuntimeError> {
        let RuntimeInner { tree, factory, .. } = &*self.inner;
        factory.check_tenant(&key.tenant).await?;
        if tree.contains(key) {
            if !given.is_empty() {
                factory.set_secrets(key, given);
                // Current subscribers must not see the secrets.
                tree.add_secrets(key, &factory.redactor(key));
            }
            return match tree.session(&key.tenant, key.session).await.map_err(RuntimeError::from) {
                Err(error) => Err(self.explain_failure(key, self.forget_if_deleted(key, error).await).await),
                attached => attached,
            };
        }
        let records = self.session_reader().await?;
        let profile = records.profile(key).await?;
        self.release_dead_lease(key, &records).await?;
        let before = factory.set_secrets(key, given);
        let attached = match factory.prepare(key, &profile).await {
            Ok(()) => tree.session(&key.tenant, key.session).await.map_err(RuntimeError::from),
            Err(error) => {
                if matches!(error, RuntimeError::Inputs { .. }) {
                    factory.restore_secrets(key, before);
                }
                Err(error)
            }
        };
        factory.drop_prepared(key);
        match attached {
            Err(error) => Err(self.forget_if_deleted(key, error).await),
            attached => attached,
        }
    }

    /// The actors report only as text why a live session does not start. Preparing the session's parts again gives the
    /// typed error.
    async fn explain_failure(&self, key: &SessionKey, error: RuntimeError) -> RuntimeError {
        let RuntimeError::Session(SessionError::NotStarted { .. } | SessionError::Quarantined { .. }) = error
        else {
            return error;
        };
        let preparing = async {
            let profile = self.session_reader().await?.profile(key).await?;
            self.inner.factory.prepare(key, &profile).await
        };
        let prepared = preparing.await;
        self.inner.factory.drop_prepared(key);
        prepared.err().unwrap_or(error)
    }

    /// Forgets the secrets of a session that was deleted during the search for it, and removes its workspace.
    async fn forget_if_deleted(&self, key: &SessionKey, error: RuntimeError) -> RuntimeError {
        let RuntimeError::NotFound { .. } = error else { return error };
        let forgotten = match self.inner.factory.existing_tenant_dir(key).await {
            Ok(Some(home)) => self.inner.factory.forget(key, &home).await,
            Ok(None) => Ok(()),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = forgotten {
            tracing::warn!(session = %key, error = %failure, "the workspace of a deleted session was not removed");
        }
        error
    }

    /// Releases the lease of a process that is known to be dead, so that no caller waits until it expires.
    pub(crate) async fn release_dead_lease(
        &self,
        key: &SessionKey,
        records: &SessionReader,
    ) -> Result<(), RuntimeError> {
        let Some(process_lock) = &self.inner.process_lock else { return Ok(()) };
        let lease = records.info(key).await?.lease.filter(|lease| process_lock.is_dead(&lease.owner));
        let Some(lease) = lease else { return Ok(()) };
        // The lease is acquired in the name of the dead process. If several processes try, the first one gets it.
        let journal = records.journal();
        let freed = match journal.acquire_lease(key, &lease.owner, Duration::from_secs(1)).await {
            Ok(taken) => journal.release_lease(key, taken.epoch).await,
            Err(error) => Err(error),
        };
        if let Err(error) = freed {
            tracing::debug!(session = %key, %error, "the lease of a dead process was not released");
        }
        Ok(())
    }
}
