//! Quotas: of zero, reached, and with room again.

use std::sync::Arc;
use std::time::Duration;

use conjure::conversation::TurnStop;
use conjure::model::ModelErrorKind;
use conjure::tenant::Quota;
use conjure::{Request, RuntimeError, SessionError, TenantPolicy, model_fn};
use tokio::sync::Semaphore;

use crate::fixture::{Host, answer, ask, budget, follow, say, soon, spec, tenant};

fn refused<T>(result: Result<T, RuntimeError>) -> conjure::tenant::QuotaExceeded {
    match result {
        Err(RuntimeError::Quota(exceeded)) => exceeded,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[tokio::test]
async fn quotas_of_zero_are_none_ever_and_say_so() {
    let host = Host::new();
    let zero = TenantPolicy::new;
    let options = host
        .options()
        .tenant(tenant("live"), zero().live_sessions(0))
        .tenant(tenant("recorded"), zero().recorded_sessions(0))
        .tenant(tenant("disk"), zero().disk_bytes(0))
        .tenant(tenant("inodes"), zero().inodes(0))
        .tenant(tenant("budget"), zero().budget(budget().tokens(conjure::tenant::Period::Total, 0)))
        .tenant(tenant("sandboxes"), zero().sandboxes(0))
        .tenant(tenant("calls"), zero().model_calls(0));
    let runtime = host.start(options).await;
    for (whose, quota) in [
        ("live", Quota::LiveSessions),
        ("recorded", Quota::RecordedSessions),
        ("disk", Quota::DiskBytes),
        ("inodes", Quota::Inodes),
    ] {
        let exceeded = refused(runtime.open(spec(whose)).await);
        assert_eq!((exceeded.quota, exceeded.limit, exceeded.tenant.as_str()), (quota, 0, whose));
        assert!(!exceeded.is_retryable(), "{exceeded}");
        assert!(exceeded.to_string().contains("and that is none"), "{exceeded}");
        assert!(runtime.session_ids(&tenant(whose)).await.unwrap().is_empty(), "nothing is left of it");
    }
    let session = runtime.open(spec("budget")).await.unwrap();
    let Err(SessionError::Quota(exceeded)) = session.send("hello").await.map(drop) else {
        panic!("it was not refused")
    };
    assert_eq!((exceeded.quota, exceeded.limit), (Quota::Tokens(conjure::tenant::Period::Total), 0));
    let session = runtime.open(spec("sandboxes")).await.unwrap();
    assert!(ask(&session, "$ echo here").await.contains("the tenant's limit is zero"));
    let session = runtime.open(spec("calls")).await.unwrap();
    let (stop, _) = say(&session, "hello").await;
    let TurnStop::ModelFailed(error) = stop else { panic!("{stop}") };
    assert_eq!((error.kind.clone(), error.retry_after), (ModelErrorKind::Overloaded, None));
    // Of those that nobody named, nothing was said.
    let other = runtime.open(spec("other")).await.unwrap();
    assert_eq!(ask(&other, "hello").await, "heard: hello");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn sessions_are_had_again_when_others_are_closed_or_deleted() {
    let host = Host::new();
    let options = host
        .options()
        .tenants(TenantPolicy::new().live_sessions(1))
        .tenant(tenant("acme"), TenantPolicy::new().recorded_sessions(2).queued_messages(0));
    let runtime = host.start(options).await;
    let first = runtime.open(spec("globex")).await.unwrap();
    let exceeded = refused(runtime.open(spec("globex")).await);
    assert_eq!((exceeded.quota, exceeded.limit, exceeded.current), (Quota::LiveSessions, 1, 2));
    assert!(exceeded.is_retryable());
    // Another tenant has its own.
    runtime.open(spec("initech")).await.unwrap();
    first.close().await.unwrap();
    let second = loop {
        match runtime.open(spec("globex")).await {
            Ok(session) => break session,
            Err(error) => assert!(matches!(error, RuntimeError::Quota(_)), "{error}"),
        }
    };
    // The first one is put away, and comes back when there is room.
    assert!(matches!(first.send("hello").await, Err(SessionError::Quota(_))));
    runtime.set_tenant(&tenant("globex"), TenantPolicy::new().live_sessions(2)).unwrap();
    assert_eq!(ask(&first, "hello").await, "heard: hello");
    let usage = runtime.tenant(&tenant("globex")).await.unwrap().usage;
    assert_eq!((usage.live_sessions, usage.recorded_sessions), (2, 2));
    drop(second);

    let [one, _two] = [runtime.open(spec("acme")).await.unwrap(), runtime.open(spec("acme")).await.unwrap()];
    let exceeded = refused(runtime.open(spec("acme")).await);
    assert_eq!((exceeded.quota, exceeded.limit, exceeded.current), (Quota::RecordedSessions, 2, 3));
    runtime.delete(&tenant("acme"), one.id()).await.unwrap();
    let many = (0..8).map(|_| runtime.open(spec("acme")));
    let opened = futures_util::future::join_all(many).await;
    assert_eq!(opened.iter().filter(|opened| opened.is_ok()).count(), 1, "one, however many ask at once");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn messages_that_wait_are_no_more_than_may() {
    let host = Host::new();
    let door = Arc::new(Semaphore::new(0));
    let opened = Arc::clone(&door);
    let slow = model_fn(move |request: Request| {
        let door = Arc::clone(&opened);
        async move {
            door.acquire().await.unwrap().forget();
            Ok(answer(&request))
        }
    });
    let policy = TenantPolicy::new().queued_messages(1).model("slow", slow);
    let runtime = host.start(host.options().tenant(tenant("acme"), policy)).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    let mut first = session.send("first").await.unwrap();
    let mut second = session.send("second").await.unwrap();
    let error = session.send("third").await.map(drop).unwrap_err();
    let SessionError::Overloaded { limit: Some(1), retry_after, .. } = error else { panic!("{error}") };
    assert_eq!(error.retry_after(), Some(retry_after));
    assert!(retry_after > Duration::ZERO && error.is_retryable(), "{error}");
    let error = RuntimeError::from(error);
    assert!(error.retry_after() == Some(retry_after) && error.is_retryable(), "{error}");
    door.add_permits(2);
    assert_eq!(follow(&mut first).await.1, "heard: first");
    assert_eq!(follow(&mut second).await.1, "heard: second");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_full_disk_of_a_tenant_refuses_sessions_and_sandboxes_until_there_is_room() {
    let host = Host::new();
    let runtime = host.start(host.options()).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    ask(&session, "$ head -c 3000000 /dev/zero > big").await;
    let other = runtime.open(spec("acme")).await.unwrap();
    let disk = runtime.tenant(&tenant("acme")).await.unwrap().usage.disk;
    assert!(disk.bytes > 3_000_000 && disk.inodes > 3, "{disk:?}");
    runtime.set_tenant(&tenant("acme"), TenantPolicy::new().disk_bytes(2_000_000)).unwrap();
    let exceeded = refused(runtime.open(spec("acme")).await);
    assert_eq!((exceeded.quota, exceeded.limit), (Quota::DiskBytes, 2_000_000));
    assert!(exceeded.current > 3_000_000, "{exceeded}");
    // One that is open gets no sandbox, and is told why; nothing is run in the one that is there. Another tenant has its own directory.
    assert!(ask(&other, "$ echo here").await.contains("bytes on the disk"));
    assert!(ask(&session, "$ echo more >> big").await.contains("bytes on the disk"));
    let elsewhere = runtime.open(spec("globex")).await.unwrap();
    assert_eq!(ask(&elsewhere, "$ echo here").await, "it says: here\n");
    runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    runtime.open(spec("acme")).await.unwrap();
    assert_eq!(ask(&other, "$ echo here").await, "it says: here\n");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn what_is_hidden_deep_down_is_not_had_for_nothing() {
    let host = Host::new();
    let runtime = host.start(host.options()).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    let hide = "$ for n in $(seq 140); do mkdir d; cd d; done; head -c 3000000 /dev/zero > big; echo hidden";
    assert_eq!(ask(&session, hide).await, "it says: hidden\n");
    // Nothing is limited, so nobody minds.
    runtime.open(spec("acme")).await.unwrap();
    runtime.set_tenant(&tenant("acme"), TenantPolicy::new().disk_bytes(2_000_000)).unwrap();
    let error = runtime.open(spec("acme")).await.map(drop).unwrap_err();
    assert!(
        matches!(&error, RuntimeError::UsageUnknown { tenant, .. } if tenant.as_str() == "acme"),
        "{error}"
    );
    assert!(ask(&session, "$ echo here").await.contains("128 deep"));
    runtime.shutdown(soon()).await.unwrap();
}
