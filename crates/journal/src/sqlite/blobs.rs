//! Large bodies, in one store for each tenant.
//!
//! A body is in the store, durably, before the transaction of its event ends; so a crash leaves a body that nothing refers
//! to, and never an event without its body. Bodies are inserted and collected only while the database is locked for
//! writing, so that no process collects what another is about to refer to.
//!
//! State: open stores, a few of them. Contents stay in a crash.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use conjure_base::{Digest, TenantId, Timestamp};
use conjure_store::{Durability, Store, StoreErrorKind, StoreOptions, Variant, Verify};

use super::fault::{of_io, of_store};
use super::open::sync_folder;
use crate::error::JournalError;
use crate::journal::Swept;

/// Each open store holds some file descriptors; beyond so many, all are closed.
const MOST_OPEN: usize = 32;

#[derive(Debug)]
pub(crate) struct Blobs {
    root: PathBuf,
    open: Mutex<HashMap<TenantId, Store>>,
    /// Whose stores are sure to be found again after a crash of the machine.
    named: Mutex<HashSet<TenantId>>,
}

/// Why a body could not be read.
pub(crate) enum ReadFailure {
    /// It is not there. It may have been collected after who reads it had seen what refers to it.
    Absent,
    /// Anything else.
    Failed(JournalError),
}

impl Blobs {
    /// The stores below this folder, which is made when the first body comes.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, open: Mutex::default(), named: Mutex::default() }
    }

    /// Keeps a body.
    pub(crate) fn insert(&self, tenant: &TenantId, body: &[u8]) -> Result<Digest, JournalError> {
        let path = self.path(tenant);
        let store = self.store(tenant)?;
        self.keep_name(tenant)?;
        let inserted = store.insert_bytes(body, Variant::Plain);
        Ok(inserted.map_err(|error| of_store(&error, &path))?.digest)
    }

    /// Reads a body.
    pub(crate) fn read(&self, tenant: &TenantId, digest: &Digest) -> Result<Vec<u8>, ReadFailure> {
        let path = self.path(tenant);
        if !path.is_dir() {
            return Err(ReadFailure::Absent);
        }
        let store = self.store(tenant).map_err(ReadFailure::Failed)?;
        let mut content = store.get(digest, Verify::No).map_err(|error| match error.kind() {
            StoreErrorKind::NotFound => ReadFailure::Absent,
            _ => ReadFailure::Failed(of_store(&error, &path)),
        })?;
        let mut body = Vec::new();
        content
            .read_to_end(&mut body)
            .map_err(|error| ReadFailure::Failed(of_io(&error, "read a large body in", &path)))?;
        Ok(body)
    }

    /// Removes the tenant's bodies that are not among these.
    pub(crate) fn collect(&self, tenant: &TenantId, live: &HashSet<Digest>) -> Result<Swept, JournalError> {
        let path = self.path(tenant);
        if !path.is_dir() {
            return Ok(Swept::default());
        }
        let failed = |error| of_store(&error, &path);
        let collected =
            self.store(tenant)?.collect(|digest| live.contains(digest), Timestamp::from_millis(u64::MAX));
        let collected = collected.map_err(failed)?;
        Ok(Swept { blobs: collected.removed, bytes: collected.bytes })
    }

    /// Removes what writers that died left half written, and yields the bodies that are there.
    pub(crate) fn sweep(&self, tenant: &TenantId) -> Result<Vec<Digest>, JournalError> {
        let path = self.path(tenant);
        if !path.is_dir() {
            return Ok(Vec::new());
        }
        let failed = |error| of_store(&error, &path);
        let store = self.store(tenant)?;
        store.sweep().map_err(failed)?;
        let there = store.digests().map_err(failed)?;
        Ok(there.into_iter().map(|(digest, _)| digest).collect())
    }

    /// The tenants that have a store.
    pub(crate) fn tenants(&self) -> Result<Vec<TenantId>, JournalError> {
        let failed = |error: io::Error| of_io(&error, "list", &self.root);
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
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = open.get(tenant) {
            return Ok(store.clone());
        }
        let path = self.path(tenant);
        let options = StoreOptions { durability: Durability::Name, ..StoreOptions::default() };
        let store = Store::open_with(&path, options).map_err(|error| of_store(&error, &path))?;
        if open.len() >= MOST_OPEN {
            open.clear();
        }
        open.insert(tenant.clone(), store.clone());
        Ok(store)
    }

    /// Waits until the names of the tenant's store and of what lies above it are on the disk. The store makes its
    /// contents durable, and not itself; who made it may have been killed before this.
    fn keep_name(&self, tenant: &TenantId) -> Result<(), JournalError> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if !named.contains(tenant) {
            let path = self.path(tenant);
            for folder in path.ancestors().take(3) {
                sync_folder(folder)?;
            }
            named.insert(tenant.clone());
        }
        Ok(())
    }
}
