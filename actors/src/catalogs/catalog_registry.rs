//! The handle of the catalog registry, and the spec of its actor.

use std::fmt;
use std::sync::{Arc, PoisonError};

use conjure_base::Deadline;
use conjure_skill::{Catalog, Reload, Skill};
use tokio::sync::watch;

use super::actor::{CatalogActor, CatalogMessage};
use super::catalog_entry::{CatalogSpec, Entries};
use super::catalog_key::CatalogKey;
use super::options::{RegistryError, RegistryOptions};
use crate::supervision::{Address, Backoff, ChildId, ChildSpec, SpecError, WorkerSpec};

/// The handle of the registry: named catalogs of skills that follow their directories. Cheap to clone; clones share one
/// registry.
#[derive(Clone)]
pub struct CatalogRegistry {
    address: Address<CatalogMessage>,
    entries: Arc<Entries>,
}

impl CatalogRegistry {
    /// A registry without catalogs: the spec of its actor, and the handle.
    ///
    /// # Errors
    /// None in practice, because the actor's id is a valid constant.
    pub fn spec(options: RegistryOptions) -> Result<(ChildSpec, Self), SpecError> {
        let entries = Arc::<Entries>::default();
        let actor_entries = Arc::clone(&entries);
        let start = move |context| {
            let actor = CatalogActor::start(Arc::clone(&actor_entries), options, &context);
            async { Ok(actor) }
        };
        let (spec, address) =
            WorkerSpec::new(ChildId::new("registry")?, start).backoff(Backoff::default()).build();
        Ok((spec, Self { address, entries }))
    }

    /// Registers a catalog and loads it. It replaces a catalog with the same key. Skills that cannot be loaded are
    /// reported as diagnostics. If the deadline passes before the load ends, the catalog stays registered.
    ///
    /// # Errors
    /// [`RegistryError::Call`], [`RegistryError::LoadPanicked`].
    pub async fn register(
        &self,
        key: CatalogKey,
        spec: CatalogSpec,
        deadline: Deadline,
    ) -> Result<Reload, RegistryError> {
        self.address.call(deadline, |reply| CatalogMessage::Register { key, spec, reply }).await?
    }

    /// Removes a catalog. Existing snapshots of it stay valid.
    ///
    /// # Errors
    /// [`RegistryError::NotFound`], [`RegistryError::Call`].
    pub async fn unregister(&self, key: CatalogKey, deadline: Deadline) -> Result<(), RegistryError> {
        self.address.call(deadline, |reply| CatalogMessage::Unregister { key, reply }).await?
    }

    /// Scans all files of a catalog now, and reports changes and errors. It finds everything that existed before the
    /// call.
    ///
    /// # Errors
    /// [`RegistryError::NotFound`], [`RegistryError::Call`], [`RegistryError::LoadPanicked`].
    pub async fn reload(&self, key: CatalogKey, deadline: Deadline) -> Result<Reload, RegistryError> {
        self.address.call(deadline, |reply| CatalogMessage::Reload { key, reply }).await?
    }

    /// The last published snapshot of a catalog; `None` before its first load. Asks no actor.
    #[must_use]
    pub fn catalog(&self, key: &CatalogKey) -> Option<Arc<Catalog>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(key)?.published.borrow().clone()
    }

    /// All skills of a catalog in the order of their names; empty if the catalog does not exist. Asks no actor.
    #[must_use]
    pub fn list(&self, key: &CatalogKey) -> Vec<Arc<Skill>> {
        self.catalog(key).map(|catalog| catalog.iter().cloned().collect()).unwrap_or_default()
    }

    /// The skill with this name. Asks no actor.
    #[must_use]
    pub fn get(&self, key: &CatalogKey, name: &str) -> Option<Arc<Skill>> {
        self.catalog(key)?.get(name).cloned()
    }

    /// A receiver of the catalog's snapshots; `None` if there is no such catalog. It holds the current snapshot, or
    /// `None` before the first load.
    #[must_use]
    pub fn subscribe(&self, key: &CatalogKey) -> Option<watch::Receiver<Option<Arc<Catalog>>>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        Some(entries.get(key)?.published.subscribe())
    }

    /// The keys of all catalogs.
    #[must_use]
    pub fn keys(&self) -> Vec<CatalogKey> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Kills the registry's actor at its next await, as a crash would. Lookups still work.
    pub fn kill(&self) {
        self.address.kill();
    }
}

impl fmt::Debug for CatalogRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogRegistry").field("catalogs", &self.keys()).finish_non_exhaustive()
    }
}
