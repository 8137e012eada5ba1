//! Many sessions in one process: passivated ones are only rows, are listed in pages, and are revived by their ids.

use std::collections::BTreeSet;
use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::session::SessionBody;
use conjure::{Clock as _, Runtime, SessionId, SessionSpec, SystemClock, TenantId};
use futures_util::{StreamExt as _, stream};

use crate::runtime::fixture::{Fixture, ask, soon, tenant};
use crate::runtime::open_failpoints::pause;

const SESSIONS: usize = 1_000;
const TENANTS: usize = 4;
const AT_ONCE: usize = 64;

fn tenant_of(number: usize) -> TenantId {
    tenant(&format!("tenant-{}", number % TENANTS))
}

/// Waits until the process holds nothing of any session.
async fn until_all_are_passivated(runtime: &Runtime) {
    let deadline = soon();
    while runtime.health().known_sessions > 0 || runtime.health().live_sessions > 0 {
        assert!(!SystemClock.remaining(deadline).is_zero(), "{:?}", runtime.health());
        pause().await;
    }
}

/// The ids of a tenant, as its pages tell them.
async fn listed(runtime: &Runtime, tenant: &TenantId) -> BTreeSet<SessionId> {
    let (mut ids, mut after) = (BTreeSet::new(), None);
    loop {
        let page = runtime.sessions(tenant, after, 150).await.unwrap();
        for session in &page.sessions {
            let SessionBody::Ok(contents) = &session.body else { panic!("{session:?}") };
            assert_eq!((contents.turns, session.lease_owner.as_ref()), (0, None));
            assert!(ids.insert(session.id), "{} is listed twice", session.id);
        }
        after = page.next;
        if after.is_none() {
            return ids;
        }
        assert_eq!(page.sessions.len(), 150);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passivated_sessions_are_only_rows() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let options = fixture.options().sessions(|sessions| sessions.idle_after = Duration::from_millis(100));
    let runtime = Runtime::spawn(options).await.unwrap();
    let opening =
        stream::iter(0..SESSIONS).map(|number| {
            let runtime = runtime.clone();
            async move {
                (tenant_of(number), runtime.open(SessionSpec::new(tenant_of(number))).await.unwrap().id())
            }
        });
    let opened: Vec<(TenantId, SessionId)> = opening.buffer_unordered(AT_ONCE).collect().await;
    until_all_are_passivated(&runtime).await;
    // The tree has tenants at most, and nothing below them; then not even those.
    let tree_text = runtime.tree().to_string();
    assert!(!tree_text.contains("sesn_"), "{tree_text}");
    let deadline = soon();
    while runtime.health().tenants > 0 {
        assert!(!SystemClock.remaining(deadline).is_zero(), "{:?}", runtime.health());
        runtime.maintenance().run("idle-tenants", deadline).await.unwrap();
    }

    for number in 0..TENANTS {
        let expected = opened.iter().filter(|(tenant, _)| *tenant == tenant_of(number)).map(|(_, id)| *id);
        assert_eq!(listed(&runtime, &tenant_of(number)).await, expected.collect());
    }
    // No session was revived for it.
    assert_eq!(runtime.health().known_sessions, 0);

    for (tenant, id) in opened.iter().step_by(SESSIONS / 25) {
        let session = runtime.session(tenant, *id).await.unwrap();
        assert_eq!(ask(&session, &format!("is it {id}?")).await, format!("heard: is it {id}?"));
        let foreign = if *tenant == tenant_of(0) { tenant_of(1) } else { tenant_of(0) };
        assert!(runtime.session(&foreign, *id).await.is_err());
    }
    until_all_are_passivated(&runtime).await;
    runtime.shutdown(soon()).await.unwrap();
}
