//! [`Vaults`]: the records of credentials, and the key that opens them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_base::TenantId;
#[cfg(feature = "mcp")]
use conjure_base::{Clock as _, Deadline, KeyedLocks, SystemClock};
use conjure_journal::Records;
use conjure_vault::{CredentialStore, VaultError, VaultKey};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::OnceCell;
#[cfg(feature = "mcp")]
use tokio::sync::OwnedMutexGuard;
#[cfg(feature = "mcp")]
use tokio_util::task::TaskTracker;

use crate::runtime::task_set::run_blocking;

/// The name of the key's file in the data directory.
const KEY_FILE: &str = "vault.key";

/// The vaults of a runtime. Clones share it.
#[derive(Clone)]
pub struct Vaults {
    inner: Arc<Inner>,
}

struct Inner {
    records: Arc<dyn Records>,
    /// The key as text, if the embedder has set one.
    given: Option<SecretString>,
    /// The key's file, used if the embedder has set no key.
    file: PathBuf,
    key: OnceCell<Arc<VaultKey>>,
    /// The running renewals of tokens. A renewal completes even if no caller waits for it, because a refresh token can
    /// often be used only once.
    #[cfg(feature = "mcp")]
    renewals: TaskTracker,
    /// The lock of each credential, held while its token is renewed.
    #[cfg(feature = "mcp")]
    renewing: KeyedLocks<String>,
}

impl Vaults {
    pub(crate) fn new(data: &Path, given: Option<SecretString>, records: Arc<dyn Records>) -> Self {
        let inner = Inner {
            records,
            given,
            file: data.join(KEY_FILE),
            key: OnceCell::new(),
            #[cfg(feature = "mcp")]
            renewals: TaskTracker::new(),
            #[cfg(feature = "mcp")]
            renewing: KeyedLocks::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The credentials of a tenant.
    ///
    /// # Errors
    /// If the configured key is not valid, or the key's file cannot be read or created.
    pub async fn credentials<'r>(&'r self, tenant: &'r TenantId) -> Result<CredentialStore<'r>, VaultError> {
        Ok(CredentialStore::new(&*self.inner.records, self.key().await?, tenant))
    }

    /// The key that seals credentials: the embedder's key, or else the one in `vault.key` in the data directory. The file
    /// is created when the key is first needed.
    async fn key(&self) -> Result<Arc<VaultKey>, VaultError> {
        let read = || async {
            if let Some(text) = &self.inner.given {
                return VaultKey::from_hex(text.expose_secret()).map(Arc::new);
            }
            let path = self.inner.file.clone();
            let failed = |reason: String| VaultError::KeyFile { path: self.inner.file.clone(), reason };
            let reading = run_blocking("reading the key of vaults", move || Ok(VaultKey::from_file(&path)));
            reading.await.map_err(|error| failed(error.to_string()))?.map(Arc::new)
        };
        self.inner.key.get_or_try_init(read).await.cloned()
    }

    /// Waits until no other task of this process renews the token of this credential. Holds off others while the guard
    /// lives.
    #[cfg(feature = "mcp")]
    pub(crate) async fn renewing(&self, credential: &str) -> OwnedMutexGuard<()> {
        self.inner.renewing.lock(credential.to_owned()).await
    }

    /// Runs a renewal to its end, even if the caller's future is dropped. `None` if the renewal panicked.
    #[cfg(feature = "mcp")]
    pub(crate) async fn renew<T: Send + 'static>(
        &self,
        renewal: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.inner.renewals.spawn(renewal).await.ok()
    }

    /// Waits for the running renewals, at most until the deadline. The tokens of a renewal that is not awaited are lost
    /// when the process ends.
    #[cfg(feature = "mcp")]
    pub(crate) async fn finish_renewals(&self, deadline: Deadline) {
        self.inner.renewals.close();
        tokio::select! {
            biased;
            () = self.inner.renewals.wait() => {}
            () = SystemClock.sleep_until(deadline) => tracing::warn!("tokens were being renewed when the runtime ended"),
        }
    }
}

impl fmt::Debug for Vaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vaults").field("file", &self.inner.file).finish_non_exhaustive()
    }
}
