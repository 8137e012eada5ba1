//! Catalogs by name and by tenant: registered, listed, found, loaded again, forgotten.

use std::sync::Arc;

use conjure_actors::catalogs::{CatalogKey, CatalogName, CatalogSpec, RegistryError};
use conjure_base::TenantId;
use conjure_skill::{Frontmatter, Mode, Scope, Skill};

use crate::bed::{Bed, content, key, soon, write};

fn names(reload: &[conjure_skill::SkillName]) -> Vec<&str> {
    reload.iter().map(conjure_skill::SkillName::as_str).collect()
}

#[tokio::test]
async fn a_catalog_is_registered_listed_and_loaded_again() {
    let bed = Bed::new().await;
    assert!(bed.registry.catalog(&key("main")).is_none() && bed.registry.list(&key("main")).is_empty());
    bed.write("pdf", "forms");
    bed.write("csv", "tables");
    let first = bed.register().await;
    assert_eq!(names(&first.added), ["csv", "pdf"]);
    let listed: Vec<String> =
        bed.registry.list(&key("main")).iter().map(|skill| skill.name().to_string()).collect();
    assert_eq!(listed, ["csv", "pdf"]);
    assert_eq!(bed.registry.get(&key("main"), "pdf").unwrap().description(), "forms");
    assert!(bed.registry.get(&key("main"), "zip").is_none());
    // What is there before the call is found, whether or not an event came first.
    bed.write("zip", "archives");
    bed.registry.reload(key("main"), soon()).await.unwrap();
    assert!(bed.registry.get(&key("main"), "zip").is_some());
    bed.registry.unregister(key("main"), soon()).await.unwrap();
    assert!(bed.registry.catalog(&key("main")).is_none());
    let gone = RegistryError::NotFound(key("main"));
    assert_eq!(bed.registry.reload(key("main"), soon()).await.unwrap_err(), gone);
    assert_eq!(bed.registry.unregister(key("main"), soon()).await.unwrap_err(), gone);
    bed.end().await;
}

#[tokio::test]
async fn catalogs_of_tenants_are_found_by_themselves_alone() {
    let bed = Bed::new().await;
    let name = || CatalogName::new("main").unwrap();
    let of = |tenant: &str| CatalogKey::for_tenant(TenantId::new(tenant).unwrap(), name());
    let (one, two) = (bed.around.path().join("one"), bed.around.path().join("two"));
    write(&one, "pdf", "of one");
    write(&two, "pdf", "of two");
    bed.register_as(&of("one"), &one).await;
    bed.register_as(&of("two"), &two).await;
    assert_eq!(bed.registry.get(&of("one"), "pdf").unwrap().description(), "of one");
    assert_eq!(bed.registry.get(&of("two"), "pdf").unwrap().description(), "of two");
    assert!(bed.registry.catalog(&CatalogKey::for_embedder(name())).is_none());
    assert!(bed.registry.catalog(&of("three")).is_none());
    // Nor by a link, which whoever writes in the folder may have made.
    write(&two, "crm", "of two");
    std::os::unix::fs::symlink(two.join("crm"), one.join("crm")).unwrap();
    let reload = bed.registry.reload(of("one"), soon()).await.unwrap();
    assert!(bed.registry.get(&of("one"), "crm").is_none());
    assert!(reload.diagnostics.iter().any(|reported| reported.rule() == conjure_skill::RuleId::ScopeLink));
    let shown: Vec<String> = bed.registry.keys().iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["one/main", "two/main"]);
    bed.end().await;
}

#[tokio::test]
async fn skills_of_the_host_stand_before_those_that_are_found() {
    let bed = Bed::new().await;
    bed.write("pdf", "found");
    bed.write("csv", "found");
    let parsed = Frontmatter::parse(&content("pdf", "the host's"), Mode::Strict).unwrap();
    let skill = Arc::new(Skill::new(parsed.frontmatter, "/pdf/SKILL.md"));
    let spec = CatalogSpec { skills: vec![skill], ..CatalogSpec::of([Scope::named(bed.scope())]) };
    bed.registry.register(key("main"), spec, soon()).await.unwrap();
    assert_eq!(bed.descriptions(), ["found", "the host's"]);
    bed.write("pdf", "found again");
    bed.write("zip", "found");
    bed.until_described(&["found", "the host's", "found"]).await;
    bed.end().await;
}

#[tokio::test]
async fn one_that_takes_the_place_of_another_hides_nothing_meanwhile() {
    let bed = Bed::new().await;
    bed.write("pdf", "before");
    bed.register().await;
    let before = bed.registry.catalog(&key("main")).unwrap();
    let other = bed.around.path().join("other");
    write(&other, "csv", "after");
    let looking = async {
        loop {
            let catalog = bed.registry.catalog(&key("main")).unwrap();
            if catalog.get("csv").is_some() {
                break;
            }
            assert!(catalog.get("pdf").is_some(), "either one or the other is there");
            tokio::task::yield_now().await;
        }
    };
    let main = key("main");
    tokio::join!(bed.register_as(&main, &other), looking);
    assert_eq!(bed.descriptions(), ["after"]);
    assert!(before.get("pdf").is_some(), "a snapshot stays what it was");
    // Also one in which there is nothing.
    bed.register_as(&main, &bed.around.path().join("none")).await;
    assert_eq!(bed.descriptions(), [""; 0]);
    bed.end().await;
}

#[test]
fn names_of_catalogs_are_checked() {
    for name in ["", "a/b", "a b", "ä", &"a".repeat(65)] {
        assert!(CatalogName::new(name).is_err(), "{name}");
    }
    assert_eq!(CatalogName::new("My.Skills_2-x").unwrap().as_str(), "My.Skills_2-x");
}
