//! Timeouts and cancellations of fetches.

use std::time::Duration;

use conjure_artifact::{ArtifactError, ArtifactErrorKind as Kind, Fetch as _, FetchRequest};
use conjure_base::{Clock as _, Deadline};
use conjure_egress::{DnsResolver, HostName};
use conjure_store::StoreUsage;
use futures_util::future::BoxFuture;
use test_support::ManualClock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::support::{Fixture, TestServer, ok, redirect};

const LIMIT: Duration = Duration::from_secs(30);

fn fixture(clock: &ManualClock) -> Fixture {
    Fixture::with(|settings| settings.clock = std::sync::Arc::new(clock.clone()))
}

/// A server that sends `beginning` and then nothing, until the client disconnects.
async fn stalling_server(beginning: &'static str) -> TestServer {
    TestServer::serving(move |_, mut stream: TcpStream| async move {
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await
}

#[tokio::test]
async fn a_stalled_server_times_out() {
    for beginning in [
        "",
        "HTTP/1.1 200",
        "HTTP/1.1 200 OK\r\nX: y\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\n\r\nhello",
    ] {
        let (site, clock) = (stalling_server(beginning).await, ManualClock::default());
        let fixture = fixture(&clock);
        let url = site.good_url("/?key=secret");
        let (fetched, ()) = tokio::join!(fixture.fetch(&url), async {
            site.was_asked(1).await;
            clock.move_to(LIMIT).await;
        });
        let error = fetched.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("fetching `{}` took longer than 30 s", site.good_url("/?key=…"))
        );
        assert!(error.kind() == Kind::TimedOut && error.is_retryable());
        assert_soon_empty(&fixture).await;
    }
}

/// A file that a thread was still writing when its fetch was dropped is removed after the write.
async fn assert_soon_empty(fixture: &Fixture) {
    loop {
        let usage = fixture.store.usage().unwrap();
        if usage == StoreUsage::default() {
            return;
        }
        assert_eq!(usage.contents, 0);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_slow_body_does_not_extend_the_timeout() {
    let clock = ManualClock::default();
    let drip = clock.clone();
    let site = TestServer::serving(move |_, mut stream: TcpStream| {
        let clock = drip.clone();
        async move {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n").await.unwrap();
            // A byte each second.
            for second in 1.. {
                if stream.write_all(b"x").await.is_err() {
                    return;
                }
                clock.set(Duration::from_secs(second));
                if second == 30 {
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                    return;
                }
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    let fixture = fixture(&clock);
    let error = fixture.fetch(&site.good_url("/")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::TimedOut);
    assert_soon_empty(&fixture).await;
}

#[tokio::test]
async fn redirects_share_one_timeout() {
    let clock = ManualClock::default();
    let moved = clock.clone();
    let site = TestServer::serving(move |head, mut stream: TcpStream| {
        let clock = moved.clone();
        async move {
            if head.path() == "/" {
                clock.set(LIMIT / 2);
                stream.write_all(&redirect("/slow")).await.unwrap();
            }
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    })
    .await;
    let fixture = fixture(&clock);
    let url = site.good_url("/");
    let (fetched, ()) = tokio::join!(fixture.fetch(&url), async {
        site.was_asked(2).await;
        clock.set(LIMIT);
    });
    assert_eq!(fetched.unwrap_err().kind(), Kind::TimedOut);
}

#[derive(Debug)]
struct SilentResolver;

impl DnsResolver for SilentResolver {
    fn resolve(&self, _: &HostName) -> BoxFuture<'static, std::io::Result<Vec<std::net::IpAddr>>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_silent_resolver_times_out() {
    let clock = ManualClock::default();
    let fixture = Fixture::with(|settings| {
        settings.clock = std::sync::Arc::new(clock.clone());
        settings.resolver = std::sync::Arc::new(SilentResolver);
    });
    let (fetched, ()) =
        tokio::join!(fixture.fetch("http://good.example/"), clock.move_to(Duration::from_secs(10)));
    assert_eq!(fetched.unwrap_err().to_string(), "resolving the name `good.example` took longer than 10 s");
}

#[tokio::test]
async fn each_caller_has_its_own_deadline() {
    let (site, clock) = (stalling_server("").await, ManualClock::default());
    let fixture = fixture(&clock);
    let url = site.good_url("/");
    let five = Duration::from_secs(5);
    let request = FetchRequest { deadline: clock.deadline(five), ..fixture.request(&url) };
    let (fetched, ()) = tokio::join!(fixture.fetch.fetch(request), clock.move_to(five));
    let error = fetched.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (Kind::TimedOut, "the fetch took longer than 5 s")
    );
    // An expired deadline sends no request.
    let request_count = site.requests().len();
    let request = FetchRequest { deadline: clock.deadline(Duration::ZERO), ..fixture.request(&url) };
    assert_eq!(fixture.fetch.fetch(request).await.unwrap_err().kind(), Kind::TimedOut);
    assert_eq!(site.requests().len(), request_count);
}

#[tokio::test]
async fn a_fetch_can_be_cancelled_at_every_wait() {
    for beginning in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"] {
        let site = stalling_server(beginning).await;
        let fixture = Fixture::new();
        let cancel = CancellationToken::new();
        let url = site.good_url("/");
        let request =
            FetchRequest { cancel: cancel.clone(), deadline: Deadline::NEVER, ..fixture.request(&url) };
        let (fetched, ()) = tokio::join!(fixture.fetch.fetch(request.clone()), async {
            site.was_asked(1).await;
            cancel.cancel();
        });
        assert!(matches!(fetched, Err(ArtifactError::Cancelled)));
        assert_soon_empty(&fixture).await;
        // It stays cancelled, and no request is sent.
        assert!(matches!(fixture.fetch.fetch(request).await, Err(ArtifactError::Cancelled)));
        assert_eq!(site.requests().len(), 1);
    }
}

#[tokio::test]
async fn slow_servers_of_one_tenant_do_not_block_others() {
    let slow = stalling_server("").await;
    let quick = TestServer::responding(ok("", "quick")).await;
    let fixture = Fixture::new();
    let other = Fixture::of(fixture.fetch.clone(), "tenant-2");
    let cancel = CancellationToken::new();
    let urls: Vec<String> = (0..33).map(|index| slow.good_url(&format!("/{index}"))).collect();
    let fetches = urls
        .iter()
        .map(|url| fixture.fetch.fetch(FetchRequest { cancel: cancel.clone(), ..fixture.request(url) }));
    let (fetched, ()) = tokio::join!(futures_util::future::join_all(fetches), async {
        slow.was_asked(32).await;
        assert_eq!(other.text(&quick.good_url("/")).await, "quick");
        assert_eq!(slow.requests().len(), 32, "the last one waits");
        cancel.cancel();
    });
    assert!(fetched.iter().all(|fetched| matches!(fetched, Err(ArtifactError::Cancelled))));
    assert_eq!(fixture.fetch(&quick.good_url("/")).await.unwrap().content.size, 5);
}
