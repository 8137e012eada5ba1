//! Tenants of which no session lives: their supervisors end, and come back.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::runtime::{NewSession, SessionRuntime, TreeOptions};
use conjure_actors::tenants::{Quota, TenantLimits};
use conjure_base::{Clock as _, SystemClock, TenantId};
use conjure_journal::LeaseOwner;
use futures_util::future::join_all;

use crate::scenario::{Scenario, answered};
use crate::support::{SECOND, memory, soon};

const CHORE: &str = "idle-tenants";

async fn runtime(idle_after: Duration) -> SessionRuntime {
    let mut options =
        TreeOptions::new(memory(), Arc::new(Scenario::default()), LeaseOwner::new("host").unwrap());
    options.sessions.idle_after = idle_after;
    SessionRuntime::spawn(options).await.unwrap()
}

fn tenant(number: usize) -> TenantId {
    TenantId::new(format!("tenant-{number}")).unwrap()
}

/// Has idle tenants looked for until none has a supervisor: who let go of a session may be about to let go of that.
async fn until_no_tenant_is_left(runtime: &SessionRuntime) {
    let deadline = soon();
    while runtime.health().tenants > 0 {
        assert!(!SystemClock.remaining(deadline).is_zero(), "{}", runtime.tree());
        runtime.maintenance().run(CHORE, deadline).await.unwrap();
    }
}

async fn until_none_lives(runtime: &SessionRuntime) {
    let deadline = soon();
    while runtime.health().live_sessions > 0 {
        assert!(!SystemClock.remaining(deadline).is_zero(), "{:?}", runtime.health());
        SystemClock.sleep_until(SystemClock.deadline(SECOND / 200)).await;
    }
}

#[tokio::test]
async fn an_idle_tenant_has_no_supervisor_and_keeps_its_limits() {
    let runtime = runtime(SECOND / 200).await;
    let terms = TenantLimits { recorded_sessions: 1, ..TenantLimits::default() };
    runtime.set_limits(&tenant(0), Some(terms));
    let session = runtime.open(NewSession::new(tenant(0))).await.unwrap();
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    until_none_lives(&runtime).await;
    // A message through the handle starts it there.
    assert_eq!(runtime.maintenance().run(CHORE, soon()).await, Ok(0));
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    let id = session.id();
    drop(session);
    assert_eq!(runtime.health().tenants, 1);
    until_no_tenant_is_left(&runtime).await;
    assert!(!runtime.tree().to_string().contains("tenant-0"));

    let error = runtime.open(NewSession::new(tenant(0))).await.unwrap_err().to_string();
    assert!(error.contains(&Quota::RecordedSessions.to_string()), "{error}");
    let session = runtime.session(&tenant(0), id).await.unwrap();
    assert_eq!(session.send("and again").await.unwrap().end().await, Ok(answered()));
    assert_eq!(runtime.health().tenants, 1);
    runtime.shutdown(soon()).await.unwrap();
}

/// A session requested at that moment is available.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ending_supervisors_do_not_race_with_starting_sessions() {
    let runtime = runtime(SECOND / 1_000).await;
    let visits = join_all((0..16).map(async |number| {
        let tenant = tenant(number % 4);
        let id = runtime.open(NewSession::new(tenant.clone())).await.unwrap().id();
        for _ in 0..20 {
            let session = runtime.session(&tenant, id).await.unwrap();
            assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
            drop(session);
            SystemClock.sleep_until(SystemClock.deadline(SECOND / 500)).await;
        }
    }));
    let ending = async {
        loop {
            if let Err(error) = runtime.maintenance().run(CHORE, soon()).await {
                break error;
            }
        }
    };
    tokio::select! {
        _ = visits => {}
        error = ending => panic!("{error}"),
    }
    until_no_tenant_is_left(&runtime).await;
    runtime.shutdown(soon()).await.unwrap();
}
