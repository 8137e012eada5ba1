use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_base::{Digest, TenantId};
use conjure_conversation::ArtifactContent;
use futures_util::FutureExt as _;
use tokio::sync::{Notify, oneshot};

use super::*;
use crate::error::{ArtifactErrorKind, PanicMessage, Retryable};

fn key(url: &str) -> CacheKey {
    CacheKey { tenant: TenantId::new("tenant").unwrap(), store: PathBuf::from("/"), url: url.to_owned() }
}

fn fetched(name: &str) -> FetchedContent {
    let content = ArtifactContent { digest: Digest::of_bytes(b""), size: 0 };
    FetchedContent { content, content_type: "text/plain".to_owned(), name: name.to_owned() }
}

#[tokio::test]
async fn concurrent_requests_share_one_flight() {
    let single_flight = Arc::new(SingleFlight::default());
    let (answer, answered) = oneshot::channel();
    let mut first =
        Arc::clone(&single_flight).join_or_start(key("a"), || async { Ok(answered.await.unwrap()) }).boxed();
    assert!((&mut first).now_or_never().is_none());
    let mut second =
        Arc::clone(&single_flight).join_or_start(key("a"), || async { panic!("a second fetch") }).boxed();
    assert!((&mut second).now_or_never().is_none());
    let other = Arc::clone(&single_flight).join_or_start(key("b"), || async { Ok(fetched("b")) }).await;
    assert_eq!(other.unwrap().name, "b");
    // The first of them is dropped, and the second continues.
    drop(first);
    answer.send(fetched("a")).unwrap();
    assert_eq!(second.await.unwrap().name, "a");
    assert!(single_flight.table.lock().unwrap().in_flight.is_empty());
}

#[tokio::test]
async fn an_abandoned_flight_is_cancelled_and_restarted() {
    let single_flight = Arc::new(SingleFlight::default());
    let (sender, dropped) = oneshot::channel::<()>();
    let fetch = || async move {
        let _sender = sender;
        std::future::pending().await
    };
    let mut only = Arc::clone(&single_flight).join_or_start(key("a"), fetch).boxed();
    assert!((&mut only).now_or_never().is_none());
    drop(only);
    assert!(dropped.await.is_err(), "the fetch was dropped with who waited for it");
    assert!(single_flight.table.lock().unwrap().in_flight.is_empty());
    assert_eq!(
        Arc::clone(&single_flight)
            .join_or_start(key("a"), || async { Ok(fetched("new")) })
            .await
            .unwrap()
            .name,
        "new"
    );
}

#[tokio::test]
async fn a_failure_is_shared_and_not_cached() {
    let failures: [fn() -> ArtifactError; 9] = [
        || ArtifactError::HostBlocked { host: "h".to_owned() },
        || ArtifactError::PrivateAddress { host: "h".to_owned() },
        || ArtifactError::SchemeNotAllowed { scheme: "s".to_owned(), allowed: "none is".to_owned() },
        || ArtifactError::InvalidUri { uri: "u".to_owned(), reason: "r".to_owned() },
        || ArtifactError::FetchFailed { url: "u".to_owned(), reason: "r".to_owned(), retry: Retryable::Yes },
        || ArtifactError::TooLarge { what: "w".to_owned(), limit: 1 },
        || ArtifactError::TimedOut { what: "w".to_owned(), waited: std::time::Duration::from_secs(1) },
        || ArtifactError::Panicked(PanicMessage::new("p")),
        || ArtifactError::Store(StoreError::NoSpace { operation: "write", path: PathBuf::from("/x") }),
    ];
    for failure in failures {
        let single_flight = Arc::new(SingleFlight::default());
        let (calls, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let join = || {
            let (calls, go) = (Arc::clone(&calls), Arc::clone(&go));
            let fetch = || async move {
                calls.fetch_add(1, Ordering::Relaxed);
                go.notified().await;
                Err(failure())
            };
            Arc::clone(&single_flight).join_or_start(key("a"), fetch).boxed()
        };
        let (mut first, mut second) = (join(), join());
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        go.notify_one();
        let (first, second) = (first.await.unwrap_err(), second.await.unwrap_err());
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        for error in [first, second] {
            assert_eq!((error.kind(), error.to_string()), (failure().kind(), failure().to_string()));
            assert_eq!(error.is_retryable(), failure().is_retryable());
        }
        go.notify_one();
        assert_eq!(join().await.unwrap_err().kind(), failure().kind());
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }
}

#[test]
fn a_store_error_is_cloned_for_all_waiters() {
    let error = ArtifactError::Store(StoreError::ReadOnly { operation: "write", path: PathBuf::from("/x") });
    assert_eq!(clone_error(&error).to_string(), error.to_string());
    assert_eq!(clone_error(&ArtifactError::FetchDisabled).kind(), ArtifactErrorKind::FetchDisabled);
}
