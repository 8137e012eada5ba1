//! The URL cache: freshness, revalidation, and separation of tenants.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use conjure_artifact::{ArtifactErrorKind as Kind, Fetch as _, FetchRequest, UrlCache};
use conjure_base::TenantId;
use conjure_store::FileMode;
use futures_util::FutureExt as _;
use test_support::ManualClock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::support::{Fixture, RequestHead, TestServer, ok, redirect};

const TTL: Duration = Duration::from_secs(15 * 60);

fn fixture(clock: &ManualClock) -> Fixture {
    Fixture::with(|settings| settings.clock = Arc::new(clock.clone()))
}

/// Answers that are counted: `answer` is given how many there were before.
async fn counting<B: AsRef<[u8]> + Send + 'static>(
    answer: impl Fn(usize, &RequestHead) -> B + Send + Sync + 'static,
) -> TestServer {
    let count = AtomicUsize::new(0);
    TestServer::answering(move |head| answer(count.fetch_add(1, Ordering::Relaxed), head)).await
}

#[tokio::test]
async fn fresh_entries_are_served_without_a_request() {
    let clock = ManualClock::default();
    let site = counting(|at, _| ok("", at.to_string())).await;
    let fixture = fixture(&clock);
    let url = site.good_url("/");
    assert_eq!(fixture.text(&url).await, "0");
    clock.set(TTL - Duration::from_millis(1));
    assert_eq!(fixture.text(&url).await, "0");
    // Another spelling of the same.
    assert_eq!(fixture.text(&site.url("GOOD.example.", "/x/..#y")).await, "0");
    assert_eq!(site.requests().len(), 1);
    clock.set(TTL);
    assert_eq!(fixture.text(&url).await, "1");
    clock.set(TTL * 2 - Duration::from_millis(1));
    assert_eq!(fixture.text(&url).await, "1");
    assert_eq!(fixture.text(&site.good_url("/?other")).await, "2");
}

#[tokio::test]
async fn stale_entries_are_revalidated() {
    let clock = ManualClock::default();
    let site = counting(|at, head| {
        if at == 1 {
            assert_eq!(head.header("if-none-match"), Some("\"v1\""));
            assert_eq!(head.header("if-modified-since"), Some("Mon, 01 Jan 2024 00:00:00 GMT"));
            return b"HTTP/1.1 304 Not Modified\r\nETag: \"v2\"\r\n\r\n".to_vec();
        }
        if at == 2 {
            assert_eq!(head.header("if-none-match"), Some("\"v2\""));
        }
        let headers =
            "Content-Type: text/csv\r\nETag: \"v1\"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n";
        ok(headers, at.to_string())
    })
    .await;
    let fixture = fixture(&clock);
    let url = site.good_url("/data.csv");
    let first = fixture.fetch(&url).await.unwrap();
    clock.set(TTL);
    assert_eq!(fixture.fetch(&url).await.unwrap(), first, "still good");
    clock.set(TTL * 2 - Duration::from_millis(1));
    assert_eq!(fixture.fetch(&url).await.unwrap(), first, "and so for its time to live");
    assert_eq!(site.requests().len(), 2);
    clock.set(TTL * 2);
    assert_eq!(fixture.text(&url).await, "2", "it changed");
}

#[tokio::test]
async fn validators_are_sent_only_to_their_server() {
    let clock = ManualClock::default();
    let site = TestServer::answering(|head| match (head.path(), head.header("if-none-match")) {
        ("/", None) => redirect("/there"),
        ("/", Some(_)) => b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec(),
        (_, Some("\"v\"")) => b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec(),
        _ => ok("ETag: \"v\"\r\n", "there"),
    })
    .await;
    let fixture = fixture(&clock);
    assert_eq!(fixture.text(&site.good_url("/")).await, "there");
    clock.set(TTL);
    assert_eq!(fixture.text(&site.good_url("/")).await, "there");
    let is_conditional: Vec<_> =
        site.requests().iter().map(|head| head.header("if-none-match").is_some()).collect();
    assert_eq!(is_conditional, [false, false, false, true]);
}

#[tokio::test]
async fn no_store_responses_are_fetched_each_time() {
    for (control, conditional) in [("no-store", false), ("no-cache", true)] {
        let site = counting(move |at, _| {
            ok(&format!("Cache-Control: {control}\r\nETag: \"v\"\r\n"), at.to_string())
        })
        .await;
        let fixture = Fixture::new();
        for expected in ["0", "1"] {
            assert_eq!(fixture.text(&site.good_url("/")).await, expected);
        }
        assert_eq!(site.requests()[1].header("if-none-match").is_some(), conditional);
    }
    let site = counting(|at, _| ok("ETag: \"v\"\r\n", at.to_string())).await;
    let off = Fixture::with(|settings| settings.options.cache = UrlCache::Off);
    for expected in ["0", "1"] {
        assert_eq!(off.text(&site.good_url("/")).await, expected);
    }
    assert_eq!(site.requests()[1].header("if-none-match"), None);
}

/// A response with these headers is fetched again after `seconds` seconds and not before.
async fn assert_refetched_after(headers: &'static str, seconds: u64) {
    let clock = ManualClock::default();
    let site = counting(move |at_millis, _| {
        ok(&format!("{}ETag: \"v\"\r\n", if at_millis == 0 { headers } else { "" }), "")
    })
    .await;
    let fixture = fixture(&clock);
    fixture.text(&site.good_url("/")).await;
    let until = Duration::from_secs(seconds);
    for (at_millis, expected_requests) in [(until.saturating_sub(Duration::from_millis(1)), 1), (until, 2)] {
        clock.set(at_millis);
        if seconds > 0 || expected_requests == 2 {
            fixture.text(&site.good_url("/")).await;
            assert_eq!(site.requests().len(), expected_requests, "{headers:?} at {at_millis:?}");
        }
    }
    assert!(site.requests()[1].header("if-none-match").is_some(), "{headers:?}");
}

#[tokio::test]
async fn a_server_may_shorten_the_time_to_live_and_not_lengthen_it() {
    let ttl = TTL.as_secs();
    for (headers, seconds) in [
        ("Cache-Control: max-age=60\r\n", 60),
        ("Cache-Control: public\r\nCache-Control: max-age=60\r\n", 60),
        ("Cache-Control: max-age=0\r\n", 0),
        ("Cache-Control: max-age=86400\r\n", ttl),
        ("Cache-Control: max-age=99999999999999999999\r\n", ttl),
        ("Cache-Control: max-age=soon\r\n", 0),
        ("Cache-Control: s-maxage=60\r\n", ttl),
        // An older response has less time left.
        ("Cache-Control: max-age=60\r\nAge: 50\r\n", 10),
        ("Cache-Control: max-age=60\r\nAge: 70\r\n", 0),
        ("Cache-Control: max-age=86400\r\nAge: 85800\r\n", 600),
        ("Age: 86400\r\n", ttl),
    ] {
        assert_refetched_after(headers, seconds).await;
    }
}

#[tokio::test]
async fn a_slow_response_has_a_shorter_freshness() {
    let clock = ManualClock::default();
    let moved = clock.clone();
    let site = counting(move |at, _| {
        if at == 0 {
            moved.set(Duration::from_secs(20));
        }
        ok("Cache-Control: max-age=60\r\n", at.to_string())
    })
    .await;
    let fixture = fixture(&clock);
    assert_eq!(fixture.text(&site.good_url("/")).await, "0");
    clock.set(Duration::from_secs(59));
    assert_eq!(fixture.text(&site.good_url("/")).await, "0");
    clock.set(Duration::from_secs(60));
    assert_eq!(fixture.text(&site.good_url("/")).await, "1");
}

#[tokio::test]
async fn a_not_modified_response_updates_the_headers() {
    let clock = ManualClock::default();
    let site = counting(|at, _| match at {
        0 => ok("Cache-Control: max-age=60\r\nETag: \"v\"\r\n", "same"),
        2 => b"HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=10\r\n\r\n".to_vec(),
        _ => b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec(),
    })
    .await;
    let fixture = fixture(&clock);
    for (at, expected_requests) in
        [(0, 1), (59, 1), (60, 2), (119, 2), (120, 3), (129, 3), (130, 4), (139, 4), (140, 5)]
    {
        clock.set(Duration::from_secs(at));
        assert_eq!(fixture.text(&site.good_url("/")).await, "same");
        assert_eq!(site.requests().len(), expected_requests, "at {at}");
    }
}

#[tokio::test]
async fn a_cached_redirect_expires_at_its_own_time() {
    let clock = ManualClock::default();
    let site = TestServer::answering(|head| match head.path() {
        "/" => b"HTTP/1.1 302 Found\r\nLocation: /there\r\nCache-Control: max-age=60\r\nContent-Length: 0\r\n\r\n"
            .to_vec(),
        _ => ok("Cache-Control: max-age=86400\r\n", "there"),
    })
    .await;
    let fixture = fixture(&clock);
    for (at, expected_requests) in [(0, 2), (59, 2), (60, 4)] {
        clock.set(Duration::from_secs(at));
        assert_eq!(fixture.text(&site.good_url("/")).await, "there");
        assert_eq!(site.requests().len(), expected_requests, "at {at}");
    }
}

#[tokio::test]
async fn a_later_no_store_removes_the_entry() {
    let clock = ManualClock::default();
    let site =
        counting(|at, _| ok(if at == 1 { "Cache-Control: no-store\r\n" } else { "" }, at.to_string())).await;
    let fixture = fixture(&clock);
    assert_eq!(fixture.text(&site.good_url("/")).await, "0");
    clock.set(TTL);
    assert_eq!(fixture.text(&site.good_url("/")).await, "1");
    assert_eq!(fixture.text(&site.good_url("/")).await, "2");
    assert_eq!(fixture.text(&site.good_url("/")).await, "2");
}

#[tokio::test]
async fn contents_removed_from_the_store_are_fetched_again() {
    let site = counting(|at_millis, head| {
        assert_eq!(head.header("if-none-match"), None, "at {at_millis}");
        ok("ETag: \"v\"\r\n", "same")
    })
    .await;
    let fixture = Fixture::new();
    let fetched = fixture.fetch(&site.good_url("/")).await.unwrap();
    assert!(fixture.store.remove(&fetched.content.digest).unwrap());
    assert_eq!(fixture.text(&site.good_url("/")).await, "same");
    assert_eq!(site.requests().len(), 2);
}

#[tokio::test]
async fn failures_are_not_cached() {
    let site = counting(|at, _| match at {
        0 => b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok("", "good"),
    })
    .await;
    let fixture = Fixture::new();
    assert_eq!(fixture.fetch(&site.good_url("/")).await.unwrap_err().kind(), Kind::FetchFailed);
    assert_eq!(fixture.text(&site.good_url("/")).await, "good");
}

#[tokio::test]
async fn the_cache_is_separate_per_tenant() {
    let site = counting(|at, head| {
        assert_eq!(head.header("if-none-match"), None);
        ok(&format!("ETag: \"v\"\r\nContent-Disposition: attachment; filename={at}.txt\r\n"), at.to_string())
    })
    .await;
    let one = Fixture::new();
    let other = Fixture::of(one.fetch.clone(), "tenant-2");
    let url = site.good_url("/");
    assert_eq!(one.text(&url).await, "0");
    assert_eq!(other.text(&url).await, "1");
    assert_eq!((one.text(&url).await, other.text(&url).await), ("0".to_owned(), "1".to_owned()));
    assert_eq!(one.fetch(&url).await.unwrap().name, "0.txt");
    assert_eq!(site.requests().len(), 2);
    assert_eq!((one.store.usage().unwrap().contents, other.store.usage().unwrap().contents), (1, 1));
}

#[tokio::test]
async fn a_shared_store_shares_no_cache_entries() {
    let site = TestServer::responding(ok("ETag: \"v\"\r\n", "same")).await;
    let fixture = Fixture::new();
    let url = site.good_url("/");
    assert_eq!(fixture.text(&url).await, "same");
    let tenant = TenantId::new("tenant-2").unwrap();
    let shared = FetchRequest { tenant: &tenant, ..fixture.request(&url) };
    fixture.fetch.fetch(shared).await.unwrap();
    assert_eq!(site.requests().len(), 2, "one for each tenant");
    let other = Fixture::of(fixture.fetch.clone(), "tenant-1");
    other.store.insert_bytes(b"same", FileMode::Plain).unwrap();
    assert_eq!(other.text(&url).await, "same");
    assert_eq!(site.requests().len(), 3, "and one for each store");
    assert!(site.requests().iter().all(|head| head.header("if-none-match").is_none()));
}

/// A site that answers each request when it is allowed to.
async fn waiting() -> (TestServer, Arc<Semaphore>) {
    let allowed = Arc::new(Semaphore::new(0));
    let wait = Arc::clone(&allowed);
    let site = TestServer::serving(move |_, mut stream: TcpStream| {
        let wait = Arc::clone(&wait);
        async move {
            wait.acquire().await.unwrap().forget();
            let _ = stream.write_all(&ok("", "good")).await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    })
    .await;
    (site, allowed)
}

#[tokio::test]
async fn concurrent_fetches_of_a_url_are_joined() {
    let (site, allowed) = waiting().await;
    let fixture = Fixture::new();
    let other = Fixture::of(fixture.fetch.clone(), "tenant-2");
    let url = site.good_url("/");
    let mut first = fixture.fetch(&url).boxed();
    let (mut second, mut elsewhere) = (fixture.fetch(&url).boxed(), other.fetch(&url).boxed());
    tokio::select! {
        biased;
        _ = &mut first => panic!("the server has not responded yet"),
        _ = &mut second => panic!("the server has not responded yet"),
        _ = &mut elsewhere => panic!("the server has not responded yet"),
        () = site.was_asked(2) => {}
    }
    // The one that began is dropped, and the fetch continues for the other.
    drop(first);
    allowed.add_permits(2);
    let (second, elsewhere) = tokio::join!(second, elsewhere);
    assert_eq!(
        (fixture.bytes(&second.unwrap()), other.bytes(&elsewhere.unwrap())),
        (b"good".to_vec(), b"good".to_vec())
    );
    assert_eq!(site.requests().len(), 2, "one for each tenant");
}

#[tokio::test]
async fn cancelling_one_caller_does_not_cancel_others() {
    let (site, allowed) = waiting().await;
    let fixture = Fixture::new();
    let url = site.good_url("/");
    let request = fixture.request(&url);
    let cancel = request.cancel.clone();
    let (first, second, ()) = tokio::join!(fixture.fetch.fetch(request), fixture.fetch(&url), async {
        site.was_asked(1).await;
        cancel.cancel();
        tokio::task::yield_now().await;
        allowed.add_permits(1);
    });
    assert_eq!(first.unwrap_err().kind(), Kind::Cancelled);
    assert_eq!(fixture.bytes(&second.unwrap()), b"good");
    assert_eq!(site.requests().len(), 1);
}

#[tokio::test]
async fn removing_a_tenant_removes_only_its_cache_entries() {
    let site = counting(|_, _| ok("ETag: \"v\"\r\n", "x")).await;
    let fixture = Fixture::new();
    let other = Fixture::of(fixture.fetch.clone(), "tenant-2");
    fixture.text(&site.good_url("/")).await;
    other.text(&site.good_url("/")).await;
    fixture.fetch.forget_tenant(&fixture.tenant);
    other.text(&site.good_url("/")).await;
    assert_eq!(site.requests().len(), 2);
    fixture.text(&site.good_url("/")).await;
    let last = site.requests().pop().unwrap();
    assert_eq!((site.requests().len(), last.header("if-none-match")), (3, None));
}
