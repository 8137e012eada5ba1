//! Large bodies, in one content-addressed store for each tenant.
//! A body is durable in the store before the transaction of its event ends. So a crash may leave an unreferenced body, but never an event
//! without its body. Bodies are inserted and collected only under the write lock of the database, so no process collects a body that
//! another is about to reference.
//!
//! State: a cache of open stores. Their contents survive a crash.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use conjure_base::{Digest, TenantId, Timestamp, lock};
use conjure_store::{Durability, FileMode, Store, StoreErrorKind, StoreOptions, Verify};

use crate::error::JournalError;
use crate::journal::SweepReport;
use crate::sqlite::database::error_map::{map_io_error, map_store_error};
use crate::sqlite::database::open::sync_dir;

/// Each open store has some file descriptors. Beyond this number, all are closed.
const MAX_OPEN_STORES: usize = 32;

#[derive(Debug)]
pub(crate) struct BlobStores {
    root: PathBuf,
    open: Mutex<HashMap<TenantId, Store>>,
    /// The tenants whose store directories were flushed to the disk.
    named: Mutex<HashSet<TenantId>>,
}

/// Why a body could not be read.
pub(crate) enum BlobReadError {
    /// It does not exist. It may have been collected after the reader read its reference.
    Missing,
    /// Any other error.
    Failed(JournalError),
}

impl BlobStores {
    /// The stores below this directory, which is created with the first body.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, open: Mutex::default(), named: Mutex::default() }
    }

    /// Stores a body.
    pub(crate) fn insert(&self, tenant: &TenantId, body: &[u8]) -> Result<Digest, JournalError> {
        let path = self.path(tenant);
        let store = self.store(tenant)?;
        self.sync_dirs(tenant)?;
        let inserted = store.insert_bytes(body, FileMode::Plain);
        Ok(inserted.map_err(|error| map_store_error(&error, &path))?.digest)
    }

    /// Reads a body.
    pub(crate) fn read(&self, tenant: &TenantId, digest: &Digest) -> Result<Vec<u8>, BlobReadError> {
        let path = self.path(tenant);
        if !path.is_dir() {
            return Err(BlobReadError::Missing);
        }
        let store = self.store(tenant).map_err(BlobReadError::Failed)?;
        let mut content = store.get(digest, Verify::No).map_err(|error| match error.kind() {
            StoreErrorKind::NotFound => BlobReadError::Missing,
            _ => BlobReadError::Failed(map_store_error(&error, &path)),
        })?;
        let mut body = Vec::new();
        content
            .read_to_end(&mut body)
            .map_err(|error| BlobReadError::Failed(map_io_error(&error, "read a large body in", &path)))?;
        Ok(body)
    }

    /// Removes the tenant's bodies that are not among these.
    pub(crate) fn collect(
        &self,
        tenant: &TenantId,
        live: &HashSet<Digest>,
    ) -> Result<SweepReport, JournalError> {
        let path = self.path(tenant);
        if !path.is_dir() {
            return Ok(SweepReport::default());
        }
        let failed = |error| map_store_error(&error, &path);
        let collected = self
            .store(tenant)?
            .collect_garbage(|digest| live.contains(digest), Timestamp::from_millis(u64::MAX));
        let collected = collected.map_err(failed)?;
        Ok(SweepReport { blobs: collected.removed, bytes: collected.bytes })
    }

    /// Removes the staging files of dead writers, and returns the existing bodies.
    pub(crate) fn sweep(&self, tenant: &TenantId) -> Result<Vec<Digest>, JournalError> {
        let path = self.path(tenant);
        if !path.is_dir() {
            return Ok(Vec::new());
        }
        let failed = |error| map_store_error(&error, &path);
        let store = self.store(tenant)?;
        store.sweep().map_err(failed)?;
        let there = store.digests().map_err(failed)?;
        Ok(there.into_iter().map(|(digest, _)| digest).collect())
    }

    /// The tenants that have a store.
    pub(crate) fn tenants(&self) -> Result<Vec<TenantId>, JournalError> {
        let failed = |error: io::Error| map_io_error(&error, "list", &self.root);
        let entries = match std::fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        let mut tenants = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            tenants.extend(name.to_str().and_then(|name| TenantId::new(name).ok()));
        }
        Ok(tenants)
    }

    fn path(&self, tenant: &TenantId) -> PathBuf {
        self.root.join(Path::new(tenant.as_str()))
    }

    fn store(&self, tenant: &TenantId) -> Result<Store, JournalError> {
        let mut open = lock(&self.open);
        if let Some(store) = open.get(tenant) {
            return Ok(store.clone());
        }
        let path = self.path(tenant);
        let options = StoreOptions { durability: Durability::Name, ..StoreOptions::default() };
        let store = Store::open_with(&path, options).map_err(|error| map_store_error(&error, &path))?;
        if open.len() >= MAX_OPEN_STORES {
            open.clear();
        }
        open.insert(tenant.clone(), store.clone());
        Ok(store)
    }

    /// Flushes the directory of the tenant's store and its parents to the disk, once. The store makes its contents durable, but not its own
    /// directory, and the process that created it may have died before this.
    fn sync_dirs(&self, tenant: &TenantId) -> Result<(), JournalError> {
        let mut named = lock(&self.named);
        if !named.contains(tenant) {
            let path = self.path(tenant);
            for dir in path.ancestors().take(3) {
                sync_dir(dir)?;
            }
            named.insert(tenant.clone());
        }
        Ok(())
    }
}
