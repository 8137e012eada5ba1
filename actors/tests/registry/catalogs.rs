//! Catalogs by name and by tenant: registration, lookup, reload and removal.

use std::sync::Arc;

use conjure_actors::catalogs::{CatalogKey, CatalogName, CatalogSpec, RegistryError};
use conjure_base::TenantId;
use conjure_skill::{Frontmatter, Mode, Scope, Skill};

use crate::fixture::{Fixture, content, key, soon, write};

fn names(reload: &[conjure_skill::SkillName]) -> Vec<&str> {
    reload.iter().map(conjure_skill::SkillName::as_str).collect()
}

#[tokio::test]
async fn a_catalog_is_registered_listed_and_loaded_again() {
    let fixture = Fixture::new().await;
    assert!(
        fixture.registry.catalog(&key("main")).is_none() && fixture.registry.list(&key("main")).is_empty()
    );
    fixture.write("pdf", "forms");
    fixture.write("csv", "tables");
    let first = fixture.register().await;
    assert_eq!(names(&first.added), ["csv", "pdf"]);
    let listed: Vec<String> =
        fixture.registry.list(&key("main")).iter().map(|skill| skill.name().to_string()).collect();
    assert_eq!(listed, ["csv", "pdf"]);
    assert_eq!(fixture.registry.get(&key("main"), "pdf").unwrap().description(), "forms");
    assert!(fixture.registry.get(&key("main"), "zip").is_none());
    // Files that exist before the call are found, with or without an event.
    fixture.write("zip", "archives");
    fixture.registry.reload(key("main"), soon()).await.unwrap();
    assert!(fixture.registry.get(&key("main"), "zip").is_some());
    fixture.registry.unregister(key("main"), soon()).await.unwrap();
    assert!(fixture.registry.catalog(&key("main")).is_none());
    let not_found = RegistryError::NotFound(key("main"));
    assert_eq!(fixture.registry.reload(key("main"), soon()).await.unwrap_err(), not_found);
    assert_eq!(fixture.registry.unregister(key("main"), soon()).await.unwrap_err(), not_found);
    fixture.end().await;
}

#[tokio::test]
async fn catalogs_of_a_tenant_are_visible_to_it_alone() {
    let fixture = Fixture::new().await;
    let name = || CatalogName::new("main").unwrap();
    let of = |tenant: &str| CatalogKey::for_tenant(TenantId::new(tenant).unwrap(), name());
    let (one, two) = (fixture.around.path().join("one"), fixture.around.path().join("two"));
    write(&one, "pdf", "of one");
    write(&two, "pdf", "of two");
    fixture.register_as(&of("one"), &one).await;
    fixture.register_as(&of("two"), &two).await;
    assert_eq!(fixture.registry.get(&of("one"), "pdf").unwrap().description(), "of one");
    assert_eq!(fixture.registry.get(&of("two"), "pdf").unwrap().description(), "of two");
    assert!(fixture.registry.catalog(&CatalogKey::for_embedder(name())).is_none());
    assert!(fixture.registry.catalog(&of("three")).is_none());
    // Nor through a link, which any writer of the directory may have created.
    write(&two, "crm", "of two");
    std::os::unix::fs::symlink(two.join("crm"), one.join("crm")).unwrap();
    let reload = fixture.registry.reload(of("one"), soon()).await.unwrap();
    assert!(fixture.registry.get(&of("one"), "crm").is_none());
    assert!(reload.diagnostics.iter().any(|reported| reported.rule() == conjure_skill::RuleId::ScopeLink));
    let keys: Vec<String> = fixture.registry.keys().iter().map(ToString::to_string).collect();
    assert_eq!(keys, ["one/main", "two/main"]);
    fixture.end().await;
}

#[tokio::test]
async fn host_skills_precede_discovered_ones() {
    let fixture = Fixture::new().await;
    fixture.write("pdf", "found");
    fixture.write("csv", "found");
    let parsed = Frontmatter::parse(&content("pdf", "the host's"), Mode::Strict).unwrap();
    let skill = Arc::new(Skill::new(parsed.frontmatter, "/pdf/SKILL.md"));
    let spec = CatalogSpec { skills: vec![skill], ..CatalogSpec::of([Scope::named(fixture.scope())]) };
    fixture.registry.register(key("main"), spec, soon()).await.unwrap();
    assert_eq!(fixture.descriptions(), ["found", "the host's"]);
    fixture.write("pdf", "found again");
    fixture.write("zip", "found");
    fixture.until_described(&["found", "the host's", "found"]).await;
    fixture.end().await;
}

#[tokio::test]
async fn replacing_a_catalog_hides_nothing_in_the_meantime() {
    let fixture = Fixture::new().await;
    fixture.write("pdf", "before");
    fixture.register().await;
    let before = fixture.registry.catalog(&key("main")).unwrap();
    let other = fixture.around.path().join("other");
    write(&other, "csv", "after");
    let looking = async {
        loop {
            let catalog = fixture.registry.catalog(&key("main")).unwrap();
            if catalog.get("csv").is_some() {
                break;
            }
            assert!(catalog.get("pdf").is_some(), "either one or the other is there");
            tokio::task::yield_now().await;
        }
    };
    let main = key("main");
    tokio::join!(fixture.register_as(&main, &other), looking);
    assert_eq!(fixture.descriptions(), ["after"]);
    assert!(before.get("pdf").is_some(), "a snapshot stays what it was");
    // Also one in which there is nothing.
    fixture.register_as(&main, &fixture.around.path().join("none")).await;
    assert_eq!(fixture.descriptions(), [""; 0]);
    fixture.end().await;
}

#[test]
fn names_of_catalogs_are_checked() {
    for name in ["", "a/b", "a b", "ä", &"a".repeat(65)] {
        assert!(CatalogName::new(name).is_err(), "{name}");
    }
    assert_eq!(CatalogName::new("My.Skills_2-x").unwrap().as_str(), "My.Skills_2-x");
}
