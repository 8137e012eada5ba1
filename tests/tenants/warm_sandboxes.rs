//! Tenants whose sandboxes come from a pool that is nobody's: what a policy says holds of a spare, too, and a tenant's deletion
//! leaves nothing in the directories of spares, whoever tidies them meanwhile.

use std::fs;
use std::path::{Path, PathBuf};

use conjure::config::PoolSettings;
use conjure::sandbox::{Boundary, Isolation, NetworkPolicy};
use conjure::{Clock as _, Runtime, RuntimeOptions, SystemClock, TenantPolicy};
use futures_util::future::join;

use crate::fixture::{Host, ask, model, soon, spec, tenant};

fn pool() -> PoolSettings {
    PoolSettings { jail: Some(2), ..PoolSettings::default() }
}

/// Waits until all spares are ready.
async fn fill(runtime: &Runtime) {
    let deadline = soon();
    while runtime.pools()[0].ready < 2 {
        assert!(!SystemClock.remaining(deadline).is_zero(), "{:?}", runtime.pools());
        tokio::task::yield_now().await;
    }
}

/// What spares have on the disk, by name.
fn places(host: &Host) -> Vec<PathBuf> {
    let dirs = ["sandboxes", "workspaces"].map(|name| host.data().join("pool").join(name));
    let entries = dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten();
    let mut places: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    places.sort();
    places
}

/// Whether a file below this directory holds these words.
fn holds(dir: &Path, words: &str) -> bool {
    fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| {
        let is = |kind: fn(&fs::FileType) -> bool| entry.file_type().is_ok_and(|found| kind(&found));
        let path = entry.path();
        (is(fs::FileType::is_dir) && holds(&path, words))
            || (is(fs::FileType::is_file)
                && fs::read(&path).is_ok_and(|text| String::from_utf8_lossy(&text).contains(words)))
    })
}

/// A spare has the host's network and walls: who may have less, or must have more, gets a sandbox that is made so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_policy_says_of_sandboxes_holds_where_warm_sandboxes_wait() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let host = Host::new();
    let floor = Isolation { filesystem: Boundary::Enforced, ..Isolation::NONE };
    let options = RuntimeOptions::from(host.config_with(NetworkPolicy::Full)).model("echo", model());
    let options = options
        .pool(pool())
        .tenant(tenant("offline"), TenantPolicy::new().network(NetworkPolicy::None))
        .tenant(tenant("walled"), TenantPolicy::new().floor(floor));
    let runtime = host.start(options).await;
    fill(&runtime).await;
    let look = "$ echo [${http_proxy:+online}]";
    for (whose, said, counts) in [
        ("anybody", "it says: [online]\n", (1, 0)),
        ("offline", "it says: []\n", (1, 1)),
        ("walled", "it says: [online]\n", (1, 2)),
        ("anybody", "it says: [online]\n", (2, 2)),
    ] {
        let session = runtime.open(spec(whose)).await.unwrap();
        assert_eq!(ask(&session, look).await, said, "{whose}");
        let pool = &runtime.pools()[0];
        assert_eq!((pool.hits, pool.misses), counts, "{whose}");
        fill(&runtime).await;
    }
    runtime.shutdown(soon()).await.unwrap();
}

/// A spare that waits is nobody's; one that was taken is the tenant's, once, as one is that was made for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warm_sandbox_counts_once_and_for_who_took_it() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let host = Host::new();
    let policy = TenantPolicy::new().sandboxes(1).waiting_sandboxes(0);
    let runtime = host.start(host.options().pool(pool()).tenant(tenant("acme"), policy)).await;
    fill(&runtime).await;
    let admitted = async || runtime.tenant(&tenant("acme")).await.unwrap().usage.sandboxes.admitted;
    assert_eq!(admitted().await, 0);
    let session = runtime.open(spec("acme")).await.unwrap();
    assert_eq!(ask(&session, "$ echo one").await, "it says: one\n");
    assert_eq!((runtime.pools()[0].hits, admitted().await), (1, 1));
    // A second one is beyond the quota, however many spares wait.
    fill(&runtime).await;
    let second = runtime.open(spec("acme")).await.unwrap();
    let said = ask(&second, "$ echo two").await;
    assert!(!said.contains("two\n"), "{said}");
    assert_eq!((runtime.pools()[0].hits, admitted().await), (1, 1));
    // Another tenant has one of them, and the first has its place back when its sandbox is gone.
    let other = runtime.open(spec("globex")).await.unwrap();
    assert_eq!(ask(&other, "$ echo three").await, "it says: three\n");
    session.close().await.unwrap();
    let deadline = soon();
    while admitted().await > 0 {
        assert!(!SystemClock.remaining(deadline).is_zero(), "its sandbox is still admitted");
        tokio::task::yield_now().await;
    }
    let third = runtime.open(spec("acme")).await.unwrap();
    assert_eq!(ask(&third, "$ echo four").await, "it says: four\n");
    assert_eq!((runtime.pools()[0].hits, admitted().await), (3, 1));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_deleted_tenant_is_left_of_the_warm_sandboxes_that_it_took() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let host = Host::new();
    let runtime = host.start(host.options().pool(pool())).await;
    fill(&runtime).await;
    let keeper = runtime.open(spec("globex")).await.unwrap();
    ask(&keeper, "$ echo kept > note").await;
    for round in 0..3 {
        fill(&runtime).await;
        let before = places(&host);
        let session = runtime.open(spec("acme")).await.unwrap();
        let write = "$ echo canary-of-''acme | tee note /tmp/note ~/note > /dev/null; head -c 200000 /dev/zero | tr '\\0' c";
        ask(&session, write).await;
        assert!(holds(&host.data(), "canary-of-acme"), "it is looked for where it would be");
        // At work in it, and in another that is just being taken.
        let busy = session.send("$ sleep 1000").await.unwrap();
        let next = runtime.open(spec("acme")).await.unwrap();
        let taking = next.send("$ sleep 1000").await.unwrap();
        runtime.delete_tenant(&tenant("acme")).await.unwrap();
        drop((busy, taking));
        assert!(!host.data().join("tenants/acme").exists(), "round {round}");
        assert!(!holds(&host.data().join("pool"), "canary-of-acme"), "round {round}");
        assert_eq!(runtime.tenant(&tenant("acme")).await.unwrap().usage.sandboxes.admitted, 0);
        fill(&runtime).await;
        // The keeper's, and two that wait: as many as before.
        assert_eq!(places(&host).len(), before.len(), "round {round}: {before:?} {:?}", places(&host));
        assert_eq!(ask(&keeper, "$ cat note").await, "it says: kept\n");
    }
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!(places(&host), [""; 0].map(PathBuf::from));
}

/// Chores of the tenants' directories make none, and touch none of a tenant that is being deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_tidies_makes_no_directory_of_a_tenant_that_goes() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let host = Host::new();
    let runtime = host.start(host.options()).await;
    runtime.open(spec("globex")).await.unwrap();
    // As another process has them while it deletes a tenant.
    let (dir, note) = (host.data().join("tenants/acme"), host.data().join("deleting/acme"));
    fs::create_dir_all(dir.join("pending")).unwrap();
    fs::write(dir.join("pending").join(conjure::SessionId::random().unwrap().stored_name()), "").unwrap();
    fs::create_dir_all(host.data().join("deleting")).unwrap();
    fs::write(&note, "").unwrap();
    assert_eq!(runtime.maintenance().run("directories", soon()).await, Ok(1));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing was made beside what was left");
    assert_eq!(fs::read_dir(dir.join("pending")).unwrap().count(), 1);
    fs::remove_file(&note).unwrap();
    assert_eq!(runtime.maintenance().run("directories", soon()).await, Ok(2));
    assert_eq!(fs::read_dir(dir.join("pending")).unwrap().count(), 0);

    for round in 0..20 {
        let session = runtime.open(spec("acme")).await.unwrap();
        let tidying = async {
            for _ in 0..5 {
                runtime.maintenance().run("directories", soon()).await.unwrap();
            }
        };
        let (deleted, ()) = join(runtime.delete_tenant(&tenant("acme")), tidying).await;
        deleted.unwrap();
        drop(session);
        assert!(!dir.exists(), "round {round}");
    }
    runtime.shutdown(soon()).await.unwrap();
}
