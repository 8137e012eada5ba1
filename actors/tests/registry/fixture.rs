//! A registry in its own supervision tree, and directories of skills.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::catalogs::{CatalogKey, CatalogName, CatalogRegistry, CatalogSpec, RegistryOptions};
use conjure_actors::supervision::{ChildId, Intensity, Root, Strategy, SupervisorSpec};
use conjure_base::{Clock, Deadline, SystemClock};
use conjure_skill::{Catalog, Reload, Scope};
use tempfile::TempDir;

pub(crate) struct Fixture {
    pub(crate) root: Root,
    pub(crate) registry: CatalogRegistry,
    /// Around the scope, `skills` in it.
    pub(crate) around: TempDir,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut RegistryOptions)) -> Self {
        let mut options = RegistryOptions::default();
        options.debounce = Duration::from_millis(5);
        // Changes are noticed by events, or never.
        options.rescan_interval = Duration::from_secs(100_000);
        change(&mut options);
        let (child, registry) = CatalogRegistry::spec(options).unwrap();
        let root = SupervisorSpec::ordered(ChildId::new("root").unwrap(), Strategy::OneForOne)
            .intensity(Intensity::new(1_000_000, Duration::from_secs(1)));
        let root = Root::spawn(root.child(child).unwrap().build().0, soon()).await.unwrap();
        Self { root, registry, around: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn scope(&self) -> PathBuf {
        self.around.path().join("skills")
    }

    pub(crate) fn write(&self, name: &str, description: &str) {
        write(&self.scope(), name, description);
    }

    /// Registers the scope.
    pub(crate) async fn register(&self) -> Reload {
        self.register_as(&key("main"), &self.scope()).await
    }

    pub(crate) async fn register_as(&self, key: &CatalogKey, scope: &Path) -> Reload {
        let spec = CatalogSpec::of([Scope::named(scope)]);
        self.registry.register(key.clone(), spec, soon()).await.unwrap()
    }

    /// Waits until the catalog is so.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&Catalog) -> bool) -> Arc<Catalog> {
        let mut published = self.registry.subscribe(&key("main")).unwrap();
        let found = published.wait_for(|catalog| catalog.as_deref().is_some_and(&is_so));
        match tokio::time::timeout(Duration::from_secs(60), found).await {
            Ok(found) => found.unwrap().clone().unwrap(),
            Err(_) => panic!("timed out waiting until {what}: {:?}", self.descriptions()),
        }
    }

    /// Waits until the descriptions are these, in the order of names.
    pub(crate) async fn until_described(&self, expected: &[&str]) -> Arc<Catalog> {
        self.until(&format!("{expected:?}"), |catalog| described(catalog) == expected).await
    }

    pub(crate) fn descriptions(&self) -> Vec<String> {
        self.registry.catalog(&key("main")).map(|catalog| described(&catalog)).unwrap_or_default()
    }

    pub(crate) async fn end(self) {
        self.root.shutdown(soon()).await.unwrap();
    }
}

pub(crate) fn described(catalog: &Catalog) -> Vec<String> {
    catalog.iter().map(|skill| skill.description().to_owned()).collect()
}

pub(crate) fn key(name: &str) -> CatalogKey {
    CatalogKey::for_embedder(CatalogName::new(name).unwrap())
}

pub(crate) fn soon() -> Deadline {
    SystemClock.deadline(Duration::from_secs(120))
}

pub(crate) fn content(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\n")
}

pub(crate) fn write(scope: &Path, name: &str, description: &str) {
    fs::create_dir_all(scope.join(name)).unwrap();
    fs::write(scope.join(name).join("SKILL.md"), content(name, description)).unwrap();
}
