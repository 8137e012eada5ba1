//! One catalog: its definition, its files, and the snapshot that lookups read.
//!
//! It is stored outside the actor, so it survives a crash of the actor.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use conjure_base::lock;
use conjure_skill::{Catalog, DiscoveryLimits, LinkPolicy, Mode, Reload, Reloader, Scope, Skill};
use tokio::sync::watch;

use super::catalog_key::CatalogKey;

/// The definition of a catalog.
#[derive(Debug, Clone)]
pub struct CatalogSpec {
    /// Skills of the embedder. They come before the skills that are found in the scopes.
    pub skills: Vec<Arc<Skill>>,
    /// The scopes that are searched for skills. They are searched again after each change.
    pub scopes: Vec<Scope>,
    /// The limits of the search.
    pub bounds: DiscoveryLimits,
    /// How strictly skills are validated.
    pub mode: Mode,
}

impl Default for CatalogSpec {
    /// No skills and no scopes, lenient validation, the default limits.
    fn default() -> Self {
        Self {
            skills: Vec::new(),
            scopes: Vec::new(),
            bounds: DiscoveryLimits::default(),
            mode: Mode::Lenient,
        }
    }
}

impl CatalogSpec {
    /// A catalog of the skills in these scopes.
    #[must_use]
    pub fn of(scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self { scopes: scopes.into_iter().collect(), ..Self::default() }
    }

    /// The same definition, except that links must not lead out of its scopes. Use it if those who write to the scopes
    /// must not read all files of this process.
    pub(crate) const fn within_scope_links(mut self) -> Self {
        self.bounds.links = LinkPolicy::WithinScope;
        self
    }
}

/// One catalog.
pub(crate) struct CatalogEntry {
    pub(crate) spec: CatalogSpec,
    /// The reloader, which knows the catalog's files. `None` before the first load, during a load, and after a load
    /// that panicked.
    reloader: Mutex<Option<Reloader>>,
    /// The snapshot for lookups; `None` before the first load.
    pub(crate) published: watch::Sender<Option<Arc<Catalog>>>,
}

/// All catalogs.
pub(crate) type Entries = RwLock<BTreeMap<CatalogKey, Arc<CatalogEntry>>>;

impl CatalogEntry {
    /// A catalog that replaces `before`. Lookups find the old snapshot until the new one is published.
    pub(crate) fn new(spec: CatalogSpec, before: Option<&Self>) -> Self {
        let published = before.map_or_else(|| watch::Sender::new(None), |before| before.published.clone());
        Self { reloader: Mutex::new(None), spec, published }
    }

    /// Loads all skills and publishes the snapshot. Blocks. Only one load may run at a time.
    pub(crate) fn load(&self) -> Reload {
        let CatalogSpec { skills, scopes, bounds, mode } = &self.spec;
        let known = self.reloader().take();
        let is_first = known.is_none();
        let mut reloader = known.unwrap_or_else(|| Reloader::new(scopes.iter().cloned(), *bounds, *mode));
        let mut reload = reloader.reload();
        *self.reloader() = Some(reloader);
        if !skills.is_empty() {
            let catalog = skills.iter().chain(reload.catalog.iter()).cloned().collect();
            reload.catalog = Arc::new(catalog);
        }
        let is_new = |published: &mut Option<Arc<Catalog>>| {
            let is_same = reload.is_unchanged() && !is_first;
            if !is_same {
                *published = Some(Arc::clone(&reload.catalog));
            }
            !is_same
        };
        self.published.send_if_modified(is_new);
        reload
    }

    fn reloader(&self) -> MutexGuard<'_, Option<Reloader>> {
        lock(&self.reloader)
    }
}
