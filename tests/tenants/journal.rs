//! What tenants have of the journal: a part by their weights, where it is busy; and what they recorded is theirs on the disk.

use std::sync::Mutex;
use std::time::Duration;

use conjure::journal::SqliteOptions;
use conjure::tenant::Quota;
use conjure::{RuntimeError, Session, TenantPolicy};
use futures_util::future::{join, join_all};
use test_support::lock_database;

use crate::fixture::{Host, ask, follow, soon, spec, tenant, until};

/// Sessions of each tenant.
const SESSIONS: usize = 24;

/// Says something in all sessions while nothing can be recorded. Gives whose messages were recorded, in their order.
async fn order(host: &Host, sessions: &[Session]) -> Vec<String> {
    let recorded = Mutex::new(Vec::new());
    let holder = lock_database(&host.data().join("journal/journal.sqlite"));
    let said = join_all(sessions.iter().map(|session| async {
        let turn = session.send("hello").await.unwrap();
        recorded.lock().unwrap().push(session.tenant().as_str().to_owned());
        turn
    }));
    let waiting = async {
        // A clock that stands goes on when nobody has anything to do: by then all of them wait for the journal.
        tokio::time::pause();
        tokio::time::sleep(Duration::from_millis(1)).await;
        tokio::time::resume();
        assert_eq!(recorded.lock().unwrap().len(), 0);
        drop(holder);
    };
    let (turns, ()) = join(said, waiting).await;
    for mut turn in turns {
        follow(&mut turn).await;
    }
    recorded.into_inner().unwrap()
}

/// Of those that were recorded first. One of a tenant's may be ahead by what was recorded before.
fn check(order: &[String], of_acme: usize) {
    assert_eq!(order.len(), 2 * SESSIONS);
    let found = order[..SESSIONS].iter().filter(|name| *name == "acme").count();
    assert!(found.abs_diff(of_acme) <= 2, "{found} where {of_acme} were expected: {order:?}");
}

#[tokio::test]
async fn a_tenant_has_its_part_of_a_busy_journal_by_its_weight() {
    let host = Host::new();
    let journal =
        SqliteOptions { batch: 1, busy_timeout: Duration::from_secs(60), ..SqliteOptions::default() };
    // No lease is renewed before the end, however long this takes: that is recorded among the rest.
    let lease = Duration::from_secs(600);
    let options = host.options().journal(journal).sessions(move |sessions| sessions.lease = lease);
    let runtime = host.start(options.tenant(tenant("acme"), TenantPolicy::new().weight(3))).await;
    let mut sessions = Vec::new();
    for number in 0..2 * SESSIONS {
        let whose = if number % 2 == 0 { "acme" } else { "globex" };
        sessions.push(runtime.open(spec(whose)).await.unwrap());
    }
    check(&order(&host, &sessions).await, SESSIONS * 3 / 4);
    // What is said of tenants later holds, too.
    runtime.set_tenant(&tenant("globex"), TenantPolicy::new().weight(9)).unwrap();
    check(&order(&host, &sessions).await, SESSIONS / 4);
    runtime.reset_tenant(&tenant("acme")).unwrap();
    runtime.reset_tenant(&tenant("globex")).unwrap();
    check(&order(&host, &sessions).await, SESSIONS / 2);
    runtime.shutdown(soon()).await.unwrap();
}

/// What is said takes of the disk, and the quota is its own tenant's.
#[tokio::test]
async fn what_is_recorded_counts_as_the_tenants_disk_until_it_is_deleted() {
    let host = Host::new();
    let runtime = host.start(host.options()).await;
    let disk = async |whose| runtime.tenant(&tenant(whose)).await.unwrap().usage.disk;
    let first = runtime.open(spec("acme")).await.unwrap();
    let (before, elsewhere) = (disk("acme").await, disk("globex").await);
    // Each is repeated by the model.
    let talk = runtime.open(spec("acme")).await.unwrap();
    for _ in 0..20 {
        ask(&talk, &"w".repeat(10_000)).await;
    }
    let small = disk("acme").await;
    assert!((400_000..1_200_000).contains(&(small.bytes - before.bytes)), "{small:?} behind {before:?}");
    // What is larger lies in files.
    ask(&talk, &"w".repeat(200_000)).await;
    let large = disk("acme").await;
    assert!((400_000..2_000_000).contains(&(large.bytes - small.bytes)), "{large:?} behind {small:?}");
    assert!(large.inodes > small.inodes);
    assert_eq!(disk("globex").await, elsewhere);

    let limit = small.bytes - 200_000;
    runtime.set_tenant(&tenant("acme"), TenantPolicy::new().disk_bytes(limit)).unwrap();
    runtime.set_tenant(&tenant("globex"), TenantPolicy::new().disk_bytes(limit)).unwrap();
    let error = runtime.open(spec("acme")).await.map(drop).unwrap_err();
    let RuntimeError::Quota(exceeded) = &error else { panic!("{error}") };
    assert_eq!((exceeded.quota, exceeded.limit), (Quota::DiskBytes, limit));
    assert!(ask(&first, "$ echo here").await.contains("bytes on the disk"));
    runtime.open(spec("globex")).await.unwrap();
    // What was said goes with its session, files a moment later.
    runtime.delete(&tenant("acme"), talk.id()).await.unwrap();
    until(async || disk("acme").await.bytes < limit).await;
    runtime.open(spec("acme")).await.unwrap();
    assert_eq!(ask(&first, "$ echo here").await, "it says: here\n");
    runtime.shutdown(soon()).await.unwrap();
}
