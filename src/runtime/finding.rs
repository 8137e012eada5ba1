//! Finding a session again that was opened before: by this process or another, that may have died over it.

use std::time::Duration;

use conjure_actors::session::{Session, SessionError};
use conjure_base::{SessionId, TenantId};
use conjure_journal::SessionKey;

use super::error::RuntimeError;
use super::given::Given;
use super::handle::{Inner, Runtime};
use super::records::Records;

impl Runtime {
    /// A session that was opened before, here or by another process. A turn that was under way goes on.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] when the tenant has none of this id; [`RuntimeError::Missing`] when it was given what is not
    /// recorded: see [`Runtime::session_with`]. When another process has it, a [`SessionError`](crate::SessionError).
    pub async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Session, RuntimeError> {
        self.session_with(tenant, id, Given::default()).await
    }

    /// The same with what the session was given and is not recorded, because it is secret. Where the session is live already,
    /// it is used from its next start on, but redacted at once, also for whoever listens already.
    ///
    /// # Errors
    /// As for [`Runtime::session`].
    pub async fn session_with(
        &self,
        tenant: &TenantId,
        id: SessionId,
        given: Given,
    ) -> Result<Session, RuntimeError> {
        let (runtime, key) = (self.clone(), SessionKey::new(tenant.clone(), id));
        let finding = async move { runtime.find_whole(&key, given).await };
        self.inner.work.whole("the finding of a session", finding).await
    }

    async fn find_whole(&self, key: &SessionKey, given: Given) -> Result<Session, RuntimeError> {
        let Inner { tree, outfitter, .. } = &*self.inner;
        outfitter.check_tenant(&key.tenant).await?;
        if tree.knows(key) {
            if !given.is_empty() {
                outfitter.give(key, given);
                // Whoever listens already is not to hear it.
                tree.conceal(key, &outfitter.redactor(key));
            }
            return match tree.session(&key.tenant, key.session).await.map_err(RuntimeError::from) {
                Err(error) => Err(self.explained(key, self.forgotten(key, error).await).await),
                attached => attached,
            };
        }
        let records = self.records().await?;
        let profile = records.profile(key).await?;
        self.free(key, &records).await?;
        let before = outfitter.give(key, given);
        let attached = match outfitter.prepare(key, &profile).await {
            Ok(()) => tree.session(&key.tenant, key.session).await.map_err(RuntimeError::from),
            Err(error) => {
                if matches!(error, RuntimeError::Inputs { .. }) {
                    outfitter.take_back(key, before);
                }
                Err(error)
            }
        };
        outfitter.settle(key);
        match attached {
            Err(error) => Err(self.forgotten(key, error).await),
            attached => attached,
        }
    }

    /// The tree knows in words why a session that somebody holds does not start; what its parts lack is told by its type.
    async fn explained(&self, key: &SessionKey, error: RuntimeError) -> RuntimeError {
        let RuntimeError::Session(SessionError::NotStarted { .. } | SessionError::Quarantined { .. }) = error
        else {
            return error;
        };
        let looking = async {
            let profile = self.records().await?.profile(key).await?;
            self.inner.outfitter.prepare(key, &profile).await
        };
        let looked = looking.await;
        self.inner.outfitter.settle(key);
        looked.err().unwrap_or(error)
    }

    /// Where a session was deleted while it was looked for, nothing is left of what it was given and made meanwhile.
    async fn forgotten(&self, key: &SessionKey, error: RuntimeError) -> RuntimeError {
        let RuntimeError::NotFound { .. } = error else { return error };
        let forgotten = match self.inner.outfitter.existing(key).await {
            Ok(Some(home)) => self.inner.outfitter.forget(key, &home).await,
            Ok(None) => Ok(()),
            Err(left) => Err(left),
        };
        if let Err(left) = forgotten {
            tracing::warn!(session = %key, error = %left, "the workspace of a deleted session is left");
        }
        error
    }

    /// Ends the lease of a process that is known to be dead, so that nobody waits for its end.
    pub(super) async fn free(&self, key: &SessionKey, records: &Records) -> Result<(), RuntimeError> {
        let Some(presence) = &self.inner.presence else { return Ok(()) };
        let lease = records.info(key).await?.lease.filter(|lease| presence.is_dead(&lease.owner));
        let Some(lease) = lease else { return Ok(()) };
        // In its name; whoever is faster has it then.
        let journal = records.journal();
        let freed = match journal.acquire(key, &lease.owner, Duration::from_secs(1)).await {
            Ok(taken) => journal.release(key, taken.epoch).await,
            Err(error) => Err(error),
        };
        if let Err(error) = freed {
            tracing::debug!(session = %key, %error, "the lease of a dead host is not ended");
        }
        Ok(())
    }
}
