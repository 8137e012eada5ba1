//! Named files of a tenant: uploaded in pieces, opened, and removed.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_base::{Digest, TenantId};
use conjure_store::{ContentWriter, FileMode};

use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::data::named_files;
use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::task_set::run_blocking;

/// How many bytes are buffered before they are written.
const CHUNK: usize = 1 << 20;

/// An upload of a file. It uses bounded memory. If it is dropped before [`FileUpload::finish`], nothing is left.
#[derive(Debug)]
pub struct FileUpload {
    home: Arc<TenantDir>,
    name: String,
    writer: ContentWriter,
    pending: Vec<u8>,
}

/// A file that was uploaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredFile {
    /// The digest of its content.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
}

impl Runtime {
    /// Starts the upload of a file of at most `limit` bytes. `name` is its name among the tenant's files: 1 to 128 of
    /// letters, digits, `_`, `-` and `.`. The first character is no dot.
    ///
    /// [`FileUpload::finish`] validates the name, after the upload.
    ///
    /// # Errors
    ///
    /// If the tenant has reached its disk quota, or its directory cannot be used.
    pub async fn upload_file(
        &self,
        tenant: &TenantId,
        name: impl Into<String>,
        limit: u64,
    ) -> Result<FileUpload, RuntimeError> {
        self.inner.factory.sandboxes.disk_usage().check(tenant).await?;
        let home = self.inner.factory.tenant_dir(tenant).await?;
        let name = name.into();
        run_blocking("the beginning of an upload", move || {
            let writer = home.data.store().writer(FileMode::Plain, limit);
            let writer = writer.map_err(|error| RuntimeError::data(home.data.path(), &error))?;
            Ok(FileUpload { home, name, writer, pending: Vec::new() })
        })
        .await
    }

    /// Opens a file of the tenant. `None` if no file has this name. It can be read even after it is removed.
    ///
    /// # Errors
    ///
    /// If the tenant's directory cannot be used.
    pub async fn open_file(&self, tenant: &TenantId, name: &str) -> Result<Option<File>, RuntimeError> {
        let (home, name) = (self.inner.factory.tenant_dir(tenant).await?, name.to_owned());
        run_blocking("the opening of a file", move || {
            let Some(path) = named_files::find(&home, &name)? else { return Ok(None) };
            File::open(&path).map(Some).map_err(|error| RuntimeError::data(&path, &error))
        })
        .await
    }

    /// The path of a file of the tenant. `None` if no file has this name. The caller must not change the file.
    ///
    /// # Errors
    ///
    /// If the tenant's directory cannot be used.
    pub async fn file_path(&self, tenant: &TenantId, name: &str) -> Result<Option<PathBuf>, RuntimeError> {
        let (home, name) = (self.inner.factory.tenant_dir(tenant).await?, name.to_owned());
        run_blocking("the search for a file", move || named_files::find(&home, &name)).await
    }

    /// Removes a file of the tenant. Returns whether it existed. Sessions that have the file keep it.
    ///
    /// # Errors
    ///
    /// If the tenant's directory cannot be used.
    pub async fn remove_file(&self, tenant: &TenantId, name: &str) -> Result<bool, RuntimeError> {
        let (home, name) = (self.inner.factory.tenant_dir(tenant).await?, name.to_owned());
        run_blocking("the removal of a file", move || named_files::remove(&home, &name)).await
    }
}

impl FileUpload {
    /// The number of bytes that were added so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.writer.size() + self.pending.len() as u64
    }

    /// Adds bytes to the file. Returns when they are written, or buffered if there are few of them.
    ///
    /// # Errors
    ///
    /// If the bytes cannot be written, or the file is longer than its limit. The upload has failed then.
    pub async fn push(mut self, bytes: &[u8]) -> Result<Self, RuntimeError> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() < CHUNK {
            return Ok(self);
        }
        run_blocking("an upload", move || self.flush()).await
    }

    /// Completes the upload. When this returns, the file is on the disk under its name.
    ///
    /// # Errors
    ///
    /// If it cannot be written, if the name is invalid, or if another file has the name.
    pub async fn finish(self) -> Result<StoredFile, RuntimeError> {
        run_blocking("the end of an upload", move || {
            let Self { home, name, writer, .. } = self.flush()?;
            let stored = writer.finish().map_err(|error| RuntimeError::data(home.data.path(), &error))?;
            named_files::keep(&home, &name, &stored.digest)?;
            Ok(StoredFile { digest: stored.digest, size: stored.size })
        })
        .await
    }

    fn flush(mut self) -> Result<Self, RuntimeError> {
        let written = self.writer.push(&self.pending);
        written.map_err(|error| RuntimeError::data(self.home.data.path(), &error))?;
        self.pending.clear();
        Ok(self)
    }
}
