//! The handle of the registry, and what its place in the tree is made of.

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

/// The registry's place in the tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct RegistrySpec {
    options: RegistryOptions,
}

impl RegistrySpec {
    /// A registry without catalogs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notices changes so.
    #[must_use]
    pub fn options(mut self, options: RegistryOptions) -> Self {
        self.options = options;
        self
    }

    /// The actor's spec, and the handle.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn build(self) -> Result<(ChildSpec, CatalogRegistry), SpecError> {
        let entries = Arc::<Entries>::default();
        let (actor_entries, options) = (Arc::clone(&entries), self.options);
        let start = move |context| {
            let actor = CatalogActor::start(Arc::clone(&actor_entries), options, &context);
            async { Ok(actor) }
        };
        let (spec, address) =
            WorkerSpec::new(ChildId::new("registry")?, start).backoff(Backoff::default()).build();
        Ok((spec, CatalogRegistry { address, entries }))
    }
}

/// The skills that are registered: named catalogs, kept as the folders are. Clones are the same.
#[derive(Clone)]
pub struct CatalogRegistry {
    address: Address<CatalogMessage>,
    entries: Arc<Entries>,
}

impl CatalogRegistry {
    /// Registers a catalog, in the place of one with this key, and loads it. What cannot be loaded is among the diagnostics.
    /// When the deadline passes before, it stays registered.
    ///
    /// # Errors
    /// [`RegistryError::Call`], [`RegistryError::BrokeOff`].
    pub async fn register(
        &self,
        key: CatalogKey,
        spec: CatalogSpec,
        deadline: Deadline,
    ) -> Result<Reload, RegistryError> {
        self.address.call(deadline, |reply| CatalogMessage::Register { key, spec, reply }).await?
    }

    /// Forgets a catalog. Snapshots of it stay with those who hold them.
    ///
    /// # Errors
    /// [`RegistryError::NotFound`], [`RegistryError::Call`].
    pub async fn unregister(&self, key: CatalogKey, deadline: Deadline) -> Result<(), RegistryError> {
        self.address.call(deadline, |reply| CatalogMessage::Unregister { key, reply }).await?
    }

    /// Looks at all files of a catalog now, and says what is different and what is wrong. What was there before the call is
    /// found.
    ///
    /// # Errors
    /// [`RegistryError::NotFound`], [`RegistryError::Call`], [`RegistryError::BrokeOff`].
    pub async fn reload(&self, key: CatalogKey, deadline: Deadline) -> Result<Reload, RegistryError> {
        self.address.call(deadline, |reply| CatalogMessage::Reload { key, reply }).await?
    }

    /// The catalog as it was last published; `None` before it was loaded first. Asks no actor.
    #[must_use]
    pub fn catalog(&self, key: &CatalogKey) -> Option<Arc<Catalog>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(key)?.published.borrow().clone()
    }

    /// All skills of a catalog, in the order of names; none of one that there is not. Asks no actor.
    #[must_use]
    pub fn list(&self, key: &CatalogKey) -> Vec<Arc<Skill>> {
        self.catalog(key).map(|catalog| catalog.iter().cloned().collect()).unwrap_or_default()
    }

    /// The skill of this name. Asks no actor.
    #[must_use]
    pub fn get(&self, key: &CatalogKey, name: &str) -> Option<Arc<Skill>> {
        self.catalog(key)?.get(name).cloned()
    }

    /// The snapshots of a catalog, as they are published; `None` when there is no such catalog.
    #[must_use]
    pub fn subscribe(&self, key: &CatalogKey) -> Option<watch::Receiver<Option<Arc<Catalog>>>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        Some(entries.get(key)?.published.subscribe())
    }

    /// Which catalogs there are.
    #[must_use]
    pub fn keys(&self) -> Vec<CatalogKey> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Ends the actor at whatever it awaits, without asking, as a crash of it would. Lookups go on.
    pub fn kill(&self) {
        self.address.kill();
    }
}

impl fmt::Debug for CatalogRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("catalogs", &self.keys()).finish_non_exhaustive()
    }
}
