//! Catalogs of skills through the runtime: of the host and of tenants, changed while sessions run.

use std::os::unix::fs::symlink;
use std::path::Path;

use conjure::config::ExecutorKind;
use conjure::runtime::{CatalogKey, CatalogName, CatalogSpec};
use conjure::skill::Scope;
use conjure::{Runtime, RuntimeError, SessionSpec};

use crate::runtime::fixture::{Fixture, ask, soon, tenant};

/// A skill with a file that names its owner.
fn write(dir: &Path, name: &str, secret: &str) {
    let dir = dir.join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let text = format!("---\nname: {name}\ndescription: Does it.\n---\nRead `secret.txt`.\n");
    std::fs::write(dir.join("SKILL.md"), text).unwrap();
    std::fs::write(dir.join("secret.txt"), secret).unwrap();
}

async fn register(runtime: &Runtime, whose: &str, dir: &Path) {
    let key = CatalogKey::for_tenant(tenant(whose), CatalogName::new("office").unwrap());
    runtime.registry().register(key, CatalogSpec::of([Scope::named(dir)]), soon()).await.unwrap();
}

#[tokio::test]
async fn a_tenant_has_only_its_own_skills() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let (one, two) = (fixture.dir().join("one"), fixture.dir().join("two"));
    write(&one, "invoices", "canary-of-one");
    write(&two, "invoices", "canary-of-two");
    write(&two, "payroll", "canary-of-two");
    // The writer of one directory tries to read the other.
    symlink(two.join("payroll"), one.join("payroll")).unwrap();
    register(&runtime, "one", &one).await;
    register(&runtime, "two", &two).await;

    let spec = |whose| SessionSpec::new(tenant(whose)).catalog("office");
    for (whose, other) in [("one", "two"), ("two", "one")] {
        let session = runtime.open(spec(whose).skills(["invoices"])).await.unwrap();
        let output = ask(&session, "$ cat /mnt/skills/*/secret.txt; ls /mnt/skills").await;
        assert!(output.contains(&format!("canary-of-{whose}")) && output.contains("invoices"), "{output}");
        assert!(!output.contains(&format!("canary-of-{other}")), "{output}");
    }
    let linked = runtime.open(spec("one").skills(["payroll"])).await.unwrap_err();
    assert!(matches!(linked, RuntimeError::UnknownSkills { .. }), "{linked}");
    // Of a catalog that it does not see, a tenant does not learn that it is there.
    let foreign = runtime.open(spec("three").skills(["invoices"])).await.unwrap_err();
    assert!(
        matches!(&foreign, RuntimeError::UnknownCatalog { available, .. } if *available == ["default"]),
        "{foreign}"
    );
    runtime.shutdown(soon()).await.unwrap();
}

/// A session keeps its skills from the open; the next session gets the current ones.
#[tokio::test]
async fn skills_are_edited_and_removed_while_sessions_run() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let dir = fixture.dir().join("one");
    write(&dir, "invoices", "the first");
    register(&runtime, "one", &dir).await;
    let spec = || SessionSpec::new(tenant("one")).catalog("office").skills(["invoices"]);
    let before = runtime.open(spec()).await.unwrap();
    write(&dir, "invoices", "the second");
    let key = CatalogKey::for_tenant(tenant("one"), CatalogName::new("office").unwrap());
    runtime.registry().reload(key.clone(), soon()).await.unwrap();
    let after = runtime.open(spec()).await.unwrap();
    let read = "$ cat /mnt/skills/invoices/secret.txt";
    assert_eq!(ask(&before, read).await, "it says: the first");
    assert_eq!(ask(&after, read).await, "it says: the second");

    std::fs::remove_dir_all(&dir).unwrap();
    runtime.registry().unregister(key, soon()).await.unwrap();
    let not_found = runtime.open(spec()).await.unwrap_err();
    assert!(matches!(not_found, RuntimeError::UnknownCatalog { .. }), "{not_found}");
    assert_eq!(ask(&before, read).await, "it says: the first");
    assert_eq!(ask(&after, read).await, "it says: the second");
    runtime.shutdown(soon()).await.unwrap();
}
