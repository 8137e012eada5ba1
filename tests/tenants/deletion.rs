//! A tenant is deleted with everything of theirs.

use std::path::Path;

use conjure::{Clock as _, RuntimeError, SessionError, SystemClock, TenantPolicy};
use conjure_journal::{Journal as _, SqliteJournal, SqliteOptions};
use futures_util::future::join_all;

use crate::fixture::{Host, ask, soon, spec, tenant};

fn exists(host: &Host, path: &str) -> bool {
    host.data().join(path).exists()
}

/// How many processes have a working directory or an open file below this one.
fn users(dir: &Path) -> usize {
    let dir = dir.canonicalize().unwrap();
    let links = |process: &Path| {
        let files =
            std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|file| file.path());
        files
            .chain([process.join("cwd")])
            .filter_map(|link| std::fs::read_link(link).ok())
            .collect::<Vec<_>>()
    };
    let own = std::process::id();
    let names = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let others = names.filter_map(|name| name.parse::<u32>().ok()).filter(|process| *process != own);
    let others = others.map(|process| Path::new("/proc").join(process.to_string()));
    others.filter(|process| links(process).iter().any(|link| link.starts_with(&dir))).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_goes_under_load_with_all_that_it_has() {
    let host = Host::new();
    let runtime = host.start(host.options()).await;
    let keeper = runtime.open(spec("globex")).await.unwrap();
    ask(&keeper, "$ echo kept > note").await;
    let sessions: Vec<_> =
        join_all((0..6).map(|_| runtime.open(spec("acme")))).await.into_iter().map(Result::unwrap).collect();
    for session in &sessions[..3] {
        ask(session, "$ head -c 200000 /dev/zero > big; mkdir -p a/b; chmod 0 a/b").await;
    }
    // Some are at work in their jails, others are opened meanwhile.
    let mut turns = Vec::new();
    for session in &sessions {
        turns.push(session.send("$ sleep 1000").await.unwrap());
    }
    let load = async {
        let mut refused = 0;
        for _ in 0..20 {
            match runtime.open(spec("acme")).await {
                Ok(_) => {}
                Err(RuntimeError::TenantBeingDeleted { tenant }) => {
                    assert_eq!(tenant.as_str(), "acme");
                    refused += 1;
                }
                // Its session was deleted while it was opened.
                Err(RuntimeError::NotFound { .. } | RuntimeError::Session(_)) => refused += 1,
                Err(other) => panic!("{other}"),
            }
            assert_eq!(ask(&keeper, "$ cat note").await, "it says: kept\n");
        }
        refused
    };
    let (deleted, _) = futures_util::future::join(runtime.delete_tenant(&tenant("acme")), load).await;
    deleted.unwrap();
    for session in &sessions {
        let error = session.send("hello").await.map(drop).unwrap_err();
        assert!(matches!(error, SessionError::NotFound { .. }), "{error}");
        let gone = runtime.session(&tenant("acme"), session.id()).await.map(drop).unwrap_err();
        assert!(matches!(gone, RuntimeError::NotFound { .. }), "{gone}");
    }
    drop(turns);
    // Those that were opened behind it go now; and again.
    for _ in 0..2 {
        runtime.delete_tenant(&tenant("acme")).await.unwrap();
        assert!(!exists(&host, "tenants/acme") && !exists(&host, "deleting/acme"));
        assert!(runtime.session_ids(&tenant("acme")).await.unwrap().is_empty());
        let usage = runtime.tenant(&tenant("acme")).await.unwrap().usage;
        assert_eq!(
            (usage.live_sessions, usage.recorded_sessions, usage.disk),
            (0, 0, conjure::tenant::DiskUsage::default())
        );
        assert!(usage.spent.iter().all(|spent| spent.used == 0), "{usage:?}");
    }
    runtime.delete_tenant(&tenant("nobody")).await.unwrap();
    assert!(!exists(&host, "tenants/nobody"));
    // A new one of its name begins with nothing.
    let session = runtime.open(spec("acme")).await.unwrap();
    assert_eq!(ask(&session, "$ ls").await, "it says: [exit code 0, no output]");
    assert_eq!(ask(&keeper, "$ cat note").await, "it says: kept\n");
    runtime.shutdown(soon()).await.unwrap();
    // What another test starts just now has its files for a moment.
    let deadline = soon();
    while users(&host.data()) > 0 {
        assert!(!SystemClock.remaining(deadline).is_zero(), "a process is left");
        tokio::task::yield_now().await;
    }
}

/// As a host leaves it that is killed at any point of a deletion: the next start completes it, and touches nobody else's.
#[tokio::test]
async fn a_deletion_that_broke_off_is_completed_by_the_next_start() {
    for point in ["noted", "forgotten", "half removed", "removed"] {
        let host = Host::new();
        let runtime = host.start(host.options()).await;
        let [mine, other] =
            [runtime.open(spec("acme")).await.unwrap(), runtime.open(spec("globex")).await.unwrap()];
        for session in [&mine, &other] {
            ask(session, "$ echo kept > note").await;
        }
        runtime.shutdown(soon()).await.unwrap();
        std::fs::create_dir_all(host.data().join("deleting")).unwrap();
        std::fs::write(host.data().join("deleting/acme"), "").unwrap();
        if point != "noted" {
            let journal =
                SqliteJournal::open(&host.data().join("journal"), SqliteOptions::default()).unwrap();
            assert_eq!(journal.delete_tenant(&tenant("acme")).await, Ok(1));
            journal.close().await;
        }
        match point {
            "half removed" => std::fs::remove_dir_all(host.data().join("tenants/acme/store")).unwrap(),
            "removed" => std::fs::remove_dir_all(host.data().join("tenants/acme")).unwrap(),
            _ => {}
        }
        let runtime = host.start(host.options()).await;
        assert!(!exists(&host, "tenants/acme") && !exists(&host, "deleting/acme"), "{point}");
        assert!(runtime.session_ids(&tenant("acme")).await.unwrap().is_empty(), "{point}");
        let usage = runtime.tenant(&tenant("acme")).await.unwrap().usage;
        assert!(usage.spent.iter().all(|spent| spent.used == 0), "{usage:?}");
        let again = runtime.session(&tenant("globex"), other.id()).await.unwrap();
        assert!(ask(&again, "$ cat note").await.ends_with("kept\n"), "{point}");
        runtime.open(spec("acme")).await.unwrap();
        runtime.shutdown(soon()).await.unwrap();
    }
}

#[tokio::test]
async fn a_tenant_of_which_another_process_has_a_session_is_not_deleted() {
    let host = Host::new();
    let [one, two] = [host.start(host.options()).await, host.start(host.options()).await];
    let session = one.open(spec("acme")).await.unwrap();
    let error = two.delete_tenant(&tenant("acme")).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Session(SessionError::TakenOver { .. })), "{error}");
    // Nobody opens more of it anywhere, and nothing is lost.
    assert!(matches!(one.open(spec("acme")).await, Err(RuntimeError::TenantBeingDeleted { .. })));
    assert_eq!(ask(&session, "hello").await, "heard: hello");
    one.shutdown(soon()).await.unwrap();
    two.delete_tenant(&tenant("acme")).await.unwrap();
    assert!(!exists(&host, "tenants/acme"));
    two.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_policy_outlives_its_tenant_and_sessions_in_memory_go_too() {
    let host = Host::new();
    let options = host.options().ephemeral().tenant(tenant("acme"), TenantPolicy::new().live_sessions(1));
    let runtime = host.start(options).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    ask(&session, "$ echo here > note").await;
    runtime.delete_tenant(&tenant("acme")).await.unwrap();
    assert!(matches!(session.send("hello").await, Err(SessionError::NotFound { .. })));
    let _first = runtime.open(spec("acme")).await.unwrap();
    assert!(matches!(runtime.open(spec("acme")).await, Err(RuntimeError::Quota(_))));
    runtime.shutdown(soon()).await.unwrap();
}
