//! A fetch that is dropped at each of its await points.

use std::pin::pin;
use std::task::Poll;

use conjure_base::Digest;
use conjure_store::{StoreUsage, Verify};

use crate::support::{Fixture, TestServer, ok, redirect};

/// The output of `future`. It is dropped if it needs more than `polls` polls.
async fn poll_at_most<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut remaining = polls;
    std::future::poll_fn(|context| {
        if remaining == 0 {
            return Poll::Ready(None);
        }
        remaining -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

#[test]
fn a_dropped_fetch_leaves_nothing() {
    let body = vec![b'x'; 700_000];
    let digest = Digest::of_bytes(&body);
    let (mut polls, mut drops) = (0, 0);
    loop {
        let fixture = Fixture::new();
        // A runtime waits for its threads when it goes, so that what is left then is left for good.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let body = body.clone();
        let fetched = runtime.block_on(async {
            let site = TestServer::answering(move |head| match head.path() {
                "/" => redirect("/there"),
                _ => ok("", &body),
            })
            .await;
            poll_at_most(polls, fixture.fetch(&site.good_url("/"))).await
        });
        drop(runtime);
        let usage = fixture.store.usage().unwrap();
        if let Some(fetched) = fetched {
            assert_eq!(fetched.unwrap().content.digest, digest);
            assert_eq!((usage.contents, usage.temporary), (1, 0));
            break;
        }
        // Dropped while the whole of it was given its name, it may have got it, and is garbage.
        if usage != StoreUsage::default() {
            assert_eq!((usage.contents, usage.temporary), (1, 0));
            assert!(fixture.store.get(&digest, Verify::Yes).is_ok());
        } else {
            drops += 1;
        }
        polls += 1;
    }
    assert!(drops > 5, "{drops} drops left nothing, of {polls}");
}
