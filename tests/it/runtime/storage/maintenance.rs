//! Background maintenance of a runtime: leftovers of killed hosts, interrupted operations, and expired sessions.

use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::{Clock as _, Runtime, RuntimeError, SystemClock};

use crate::runtime::fixture::{Fixture, ask, soon, spec, tenant, until_clock_advances};
use crate::runtime::open_failpoints::on_disk;

#[tokio::test]
async fn leftovers_of_a_process_that_dies_later_are_removed_without_a_start() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    ask(&session, "$ echo kept > note").await;
    assert_eq!(runtime.maintenance().run("dead-hosts", soon()).await, Ok(0));
    // As one leaves it that was killed: a mark, and a place of a process that is no more.
    let mark = fixture.data().join("processes").join(conjure::artifact::Digest::of_bytes(b"killed").to_hex());
    std::fs::write(&mark, "").unwrap();
    let path = fixture.data().join("tenants/acme/sandboxes/4194304999-0");
    std::fs::create_dir_all(path.join("output")).unwrap();
    std::fs::write(path.join("lock"), "").unwrap();
    assert_eq!(runtime.maintenance().run("dead-hosts", soon()).await, Ok(1));
    assert!(!path.exists() && !mark.exists());
    // It is known, and not swept for again; who lives is not touched.
    assert_eq!(runtime.maintenance().run("dead-hosts", soon()).await, Ok(0));
    assert_eq!(ask(&session, "$ cat note").await, "it says: kept\n");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn interrupted_operations_are_completed_without_a_start() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    // As a host leaves it that was killed before it had recorded what it opened.
    let lost = conjure::SessionId::random().unwrap().stored_name();
    let dir = fixture.data().join("tenants/acme");
    std::fs::write(dir.join("pending").join(&lost), "").unwrap();
    let workspace = dir.join("workspaces").join(&lost).join("workspace");
    std::fs::create_dir_all(&workspace).unwrap();
    for chore in ["directories", "journal"] {
        runtime.maintenance().run(chore, soon()).await.unwrap();
    }
    assert!(!workspace.exists());
    assert_eq!(std::fs::read_dir(dir.join("pending")).unwrap().count(), 0);
    assert_eq!(ask(&session, "hello").await, "heard: hello");
    let done = runtime.maintenance().tasks();
    let dirs = done.iter().find(|chore| chore.name == "directories").unwrap();
    assert_eq!((dirs.runs, dirs.failures), (1, 0));
    runtime.shutdown(soon()).await.unwrap();
}

/// Another process deletes a session, and could not end that: what it noted is not for who keeps nothing to judge.
#[tokio::test]
async fn a_runtime_in_memory_completes_nothing_of_persistent_ones() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let keeping = fixture.start().await;
    let session = keeping.open(spec()).await.unwrap();
    ask(&session, "$ echo kept > note").await;
    let mark = fixture.data().join("tenants/acme/pending").join(session.id().stored_name());
    std::fs::write(&mark, "").unwrap();
    let ephemeral = Runtime::spawn(fixture.options().ephemeral()).await.unwrap();
    ephemeral.maintenance().run("directories", soon()).await.unwrap();
    assert!(mark.exists());
    assert_eq!(ask(&session, "$ cat note").await, "it says: kept\n");
    keeping.maintenance().run("directories", soon()).await.unwrap();
    assert!(!mark.exists(), "it is recorded, so it stays");
    assert_eq!(ask(&session, "$ cat note").await, "it says: kept\n");
    ephemeral.shutdown(soon()).await.unwrap();
    keeping.shutdown(soon()).await.unwrap();
}

async fn passivate(runtime: &Runtime) {
    let deadline = soon();
    while runtime.health().known_sessions > 1 {
        assert!(!SystemClock.remaining(deadline).is_zero(), "timed out waiting for the passivation");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_session_idle_beyond_the_retention_is_deleted_with_its_files() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = Runtime::spawn(fixture.options().retention(Duration::ZERO)).await.unwrap();
    let [old, in_use] = [runtime.open(spec()).await.unwrap(), runtime.open(spec()).await.unwrap()];
    for session in [&old, &in_use] {
        ask(session, "$ echo mine > note").await;
    }
    let id = old.id();
    old.close().await.unwrap();
    drop(old);
    passivate(&runtime).await;
    let maintenance = runtime.maintenance();
    assert_eq!(
        maintenance.run("retention", soon()).await,
        Ok(0),
        "whether the clock is right is not known yet"
    );
    until_clock_advances().await;
    assert_eq!(maintenance.run("retention", soon()).await, Ok(1));
    assert_eq!(maintenance.run("retention", soon()).await, Ok(0), "somebody has the other one");
    let not_found = runtime.session(&tenant("acme"), id).await.unwrap_err();
    assert!(matches!(not_found, RuntimeError::NotFound { .. }), "{not_found}");
    assert_eq!(on_disk(&fixture)[0], 1, "its workspace was removed, and the other one exists");
    assert!(ask(&in_use, "$ cat note").await.ends_with("mine\n"));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn without_a_retention_nothing_is_deleted_by_itself() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let error = runtime.maintenance().run("retention", soon()).await.unwrap_err();
    assert!(
        error.to_string().starts_with("there is no maintenance task `retention`; there are: "),
        "{error}"
    );
    runtime.shutdown(soon()).await.unwrap();
}
