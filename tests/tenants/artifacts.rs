//! Artifacts of a tenant whose disk is limited: what does not fit is refused before a byte of it is copied.

use conjure::artifact::RegistrationSource;
use conjure::tenant::{DiskUsage, Quota, QuotaExceeded};
use conjure::{Runtime, RuntimeError, Session, SessionError, TenantPolicy};
use futures_util::future::join_all;

use crate::fixture::{Host, ask, soon, spec, tenant};

const MIB: u64 = 1 << 20;

/// Bytes that no other number of them is a part of.
fn bytes(number: u8, length: u64) -> Vec<u8> {
    vec![number; usize::try_from(length).unwrap()]
}

fn content(number: u8, length: u64) -> RegistrationSource {
    RegistrationSource::content(bytes(number, length), "application/octet-stream")
}

fn exceeded<T: std::fmt::Debug>(result: Result<T, SessionError>) -> QuotaExceeded {
    match result {
        Err(SessionError::Quota(exceeded)) => exceeded,
        other => panic!("{other:?}"),
    }
}

async fn disk(runtime: &Runtime) -> DiskUsage {
    runtime.tenant(&tenant("acme")).await.unwrap().usage.disk
}

/// The tenant may have so much more than it has.
async fn leave(runtime: &Runtime, bytes: u64) -> u64 {
    let limit = disk(runtime).await.bytes + bytes;
    runtime.set_tenant(&tenant("acme"), TenantPolicy::new().disk_bytes(limit)).unwrap();
    limit
}

async fn names(session: &Session) -> Vec<String> {
    session.artifacts().list().await.unwrap().into_iter().map(|artifact| artifact.name.to_string()).collect()
}

#[tokio::test]
async fn an_artifact_that_does_not_fit_is_refused_and_leaves_nothing() {
    let host = Host::new();
    let runtime = host.start(host.options()).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    let artifacts = session.artifacts();
    artifacts.register("first", content(1, MIB)).await.unwrap();
    let limit = leave(&runtime, 2 * MIB).await;
    let before = disk(&runtime).await;
    let (given, made) = (tempfile::tempdir().unwrap(), 3 * MIB);
    let file = given.path().join("large");
    std::fs::write(&file, bytes(2, made)).unwrap();
    for source in [content(2, made), RegistrationSource::file(&file)] {
        let refused = exceeded(artifacts.register("large", source).await);
        assert_eq!((refused.quota, refused.limit), (Quota::DiskBytes, limit));
        assert_eq!(refused.current, before.bytes + made, "what it would come to");
    }
    assert_eq!(disk(&runtime).await, before, "nothing is left of what was refused");
    assert_eq!(names(&session).await, ["first"]);
    // What fits does, up to the limit and again when there is room; and another tenant has its own.
    artifacts.register("second", content(3, MIB + MIB / 2)).await.unwrap();
    exceeded(artifacts.register("third", content(4, MIB)).await);
    runtime
        .open(spec("globex"))
        .await
        .unwrap()
        .artifacts()
        .register("large", content(2, made))
        .await
        .unwrap();
    leave(&runtime, 3 * MIB).await;
    artifacts.register("third", content(4, MIB)).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn many_at_once_have_no_more_than_there_is() {
    let host = Host::new();
    let runtime = host.start(host.options()).await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let session = runtime.open(spec("acme")).await.unwrap();
        // Its directories are there.
        session
            .artifacts()
            .register("mark", RegistrationSource::content("mark", "text/plain"))
            .await
            .unwrap();
        sessions.push(session);
    }
    let limit = leave(&runtime, 5 * MIB).await;
    let all = sessions.iter().zip(1..).map(|(session, number)| async move {
        session.artifacts().register("large", content(number, 2 * MIB)).await
    });
    let (given, refused): (Vec<_>, Vec<_>) = join_all(all).await.into_iter().partition(Result::is_ok);
    assert_eq!((given.len(), refused.len()), (2, 2));
    for refused in refused {
        assert_eq!(exceeded(refused).limit, limit);
    }
    assert!(disk(&runtime).await.bytes <= limit);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_disk_that_is_used_up_takes_no_artifact_however_it_is_given() {
    let host = Host::new();
    let runtime = host.start(host.options()).await;
    let session = runtime.open(spec("acme")).await.unwrap();
    assert_eq!(ask(&session, "$ head -c 1000000 /dev/zero > made; echo done").await, "it says: done\n");
    let files = session.files().await.unwrap();
    let file = files.iter().find(|file| file.name == "made").unwrap();
    leave(&runtime, 0).await;
    let artifacts = session.artifacts();
    assert_eq!(exceeded(artifacts.register("small", content(1, 1)).await).quota, Quota::DiskBytes);
    assert_eq!(exceeded(session.store_file(file).await).quota, Quota::DiskBytes);
    // A URL is nothing before it is fetched.
    artifacts.register("url", RegistrationSource::url("https://example.com/data.json")).await.unwrap();
    // A session that is opened with one is refused by the same error, and nothing is left of it.
    leave(&runtime, MIB).await;
    let before = disk(&runtime).await;
    let opened = runtime.open(spec("acme").artifact("large", content(2, 2 * MIB))).await;
    let Err(RuntimeError::Quota(refused)) = opened.map(drop) else { panic!("it was not refused") };
    assert_eq!(refused.quota, Quota::DiskBytes);
    assert_eq!(runtime.session_ids(&tenant("acme")).await.unwrap(), [session.id()]);
    assert_eq!(disk(&runtime).await, before);
    // Files count, too.
    let inodes = disk(&runtime).await.inodes;
    runtime.set_tenant(&tenant("acme"), TenantPolicy::new().inodes(inodes)).unwrap();
    assert_eq!(exceeded(artifacts.register("small", content(1, 1)).await).quota, Quota::Inodes);
    leave(&runtime, 4 * MIB).await;
    session.store_file(file).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
}
