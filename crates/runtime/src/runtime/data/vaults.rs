//! [`Vaults`]: the records of credentials, and the key that opens them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_journal::Records;
use conjure_vault::{VaultError, VaultKey};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::OnceCell;
#[cfg(feature = "mcp")]
use tokio::sync::{Mutex, MutexGuard};

use crate::runtime::task_set::run_blocking;

/// The name of the key's file in the data folder.
const KEY_FILE: &str = "vault.key";

/// The vaults of a runtime. Clones share it.
#[derive(Clone)]
pub struct Vaults {
    inner: Arc<Inner>,
}

struct Inner {
    records: Arc<dyn Records>,
    /// The key as text, if the embedder has named one.
    given: Option<SecretString>,
    /// The file of the key otherwise.
    file: PathBuf,
    key: OnceCell<Arc<VaultKey>>,
    /// Held while a token is renewed.
    #[cfg(feature = "mcp")]
    renewing: Mutex<()>,
}

impl Vaults {
    pub(crate) fn new(data: &Path, given: Option<SecretString>, records: Arc<dyn Records>) -> Self {
        let inner = Inner {
            records,
            given,
            file: data.join(KEY_FILE),
            key: OnceCell::new(),
            #[cfg(feature = "mcp")]
            renewing: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The records of the credentials.
    #[must_use]
    pub fn records(&self) -> &dyn Records {
        &*self.inner.records
    }

    /// The key that seals credentials: the one that the embedder has named, else that of `vault.key` in the data folder, which is made when it is
    /// first needed.
    ///
    /// # Errors
    /// When there is no such key, or its file cannot be read or made.
    pub async fn key(&self) -> Result<Arc<VaultKey>, VaultError> {
        let read = || async {
            if let Some(text) = &self.inner.given {
                return VaultKey::from_hex(text.expose_secret()).map(Arc::new);
            }
            let path = self.inner.file.clone();
            let failed = |reason: String| VaultError::KeyFile { path: self.inner.file.clone(), reason };
            let reading = run_blocking("reading the key of vaults", move || Ok(VaultKey::of_file(&path)));
            reading.await.map_err(|error| failed(error.to_string()))?.map(Arc::new)
        };
        self.inner.key.get_or_try_init(read).await.cloned()
    }

    /// Waits until nobody else renews a token.
    #[cfg(feature = "mcp")]
    pub(crate) async fn renewing(&self) -> MutexGuard<'_, ()> {
        self.inner.renewing.lock().await
    }
}

impl fmt::Debug for Vaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vaults").field("file", &self.inner.file).finish_non_exhaustive()
    }
}
