//! Calls that are dropped while they hold or wait for a permit of the limiter: other calls continue at once.

use std::future::Future;
use std::sync::Arc;

use conjure_anthropic::{Client, Messages, ModelOptions};
use conjure_conversation::{Model, ModelEvent, ModelStream};
use futures_util::{FutureExt as _, StreamExt as _};
use test_support::{Loopback, authority};
use tokio::sync::Notify;

use crate::clock::ManualClock;
use crate::events::text_stream;
use crate::server::{Part, Server, error, stream};
use crate::support::{IDLE, MODEL, TOTAL, ask, call, client, config, drain, text};

fn limited() -> Part {
    Part::Bytes(error("429 x", &[("retry-after", "2")], "rate_limit_error", "wait"))
}

fn good_response() -> Part {
    Part::Bytes(stream(&text_stream("Hello")))
}

/// Request 0 is rate-limited, later ones hang, and from `then` on all succeed.
async fn server(then: usize) -> Server {
    Server::start(move |n, _| match n {
        0 => vec![limited()],
        n if n < then => vec![Part::Hang],
        _ => vec![good_response()],
    })
    .await
}

/// A model whose key is rate-limited.
async fn rate_limited_client(server: &Server, clock: &ManualClock) -> Messages {
    let config = config(server).with_http(|http| http.with_retries(0));
    let client = Client::with_clock(&config, Arc::new(clock.clone())).unwrap();
    let messages = client.messages(ModelOptions::new(MODEL)).unwrap();
    call(&messages).await.unwrap_err();
    messages
}

/// Polls `dropped` until `there`, and drops it.
async fn drop_when(dropped: impl Future, there: impl Future) {
    tokio::select! {
        biased;
        _ = dropped => panic!("it hangs"),
        _ = there => {}
    }
}

/// The next call is answered without any time passing.
async fn assert_free(messages: &Messages, clock: &ManualClock) {
    let before = clock.elapsed();
    assert_eq!(text(&call(messages).await.unwrap()), "Hello");
    assert_eq!(clock.elapsed(), before);
}

#[tokio::test]
async fn a_call_may_be_dropped_while_the_gate_is_closed() {
    let (server, clock) = (server(1).await, ManualClock::new());
    let messages = rate_limited_client(&server, &clock).await;
    let first = drain(messages.stream(ask("first")));
    drop_when(first, clock.sleeper_for(TOTAL)).await;
    // The wait of whoever is first in the queue now is the rest of the same wait.
    let second = call(&messages);
    let answer = tokio::select! {
        biased;
        answer = second => answer,
        () = async { clock.skip_retry_wait().await; std::future::pending().await } => unreachable!(),
    };
    assert_eq!(text(&answer.unwrap()), "Hello");
    assert_free(&messages, &clock).await;
}

#[tokio::test]
async fn a_probe_may_be_dropped_before_its_response_head() {
    let (server, clock) = (server(2).await, ManualClock::new());
    let messages = rate_limited_client(&server, &clock).await;
    let probe = drain(messages.stream(ask("probe")));
    let there = async {
        clock.skip_retry_wait().await;
        server.received(2).await;
    };
    drop_when(probe, there).await;
    assert_free(&messages, &clock).await;
}

#[tokio::test]
async fn a_call_may_be_dropped_during_its_backoff() {
    let server = Server::start(|n, _| match n {
        0 => vec![Part::Bytes(error("500 x", &[("retry-after", "3")], "api_error", "oops"))],
        _ => vec![good_response()],
    })
    .await;
    let clock = ManualClock::new();
    let client = Client::with_clock(&config(&server), Arc::new(clock.clone())).unwrap();
    let messages = client.messages(ModelOptions::new(MODEL)).unwrap();
    let waiting = drain(messages.stream(ask("first")));
    drop_when(waiting, clock.sleeper_for(std::time::Duration::from_secs(3))).await;
    assert_free(&messages, &clock).await;
    assert_eq!(server.requests().len(), 2);
}

/// The first connection is rate-limited, the second never completes its handshake.
#[tokio::test]
async fn a_probe_may_be_dropped_while_it_connects() {
    let (root, acceptor) = authority(&["localhost"]);
    let inner = server(1).await;
    let (connecting, target) = (Arc::new(Notify::new()), inner.address);
    let noticed = Arc::clone(&connecting);
    let mut connections = 0..;
    let loopback = Loopback::start(move |stream| {
        let (n, acceptor, noticed) = (connections.next(), acceptor.clone(), Arc::clone(&noticed));
        async move {
            if n == Some(1) {
                noticed.notify_one();
                std::future::pending::<()>().await;
            }
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut server = tokio::net::TcpStream::connect(target).await.unwrap();
            // The client leaves in whatever way it likes.
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
        }
    })
    .await;
    let clock = ManualClock::new();
    let config = config(&inner)
        .with_base_url(format!("https://localhost:{}", loopback.address.port()))
        .with_http(|http| http.with_root(root).with_retries(0));
    let client = Client::with_clock(&config, Arc::new(clock.clone())).unwrap();
    let messages = client.messages(ModelOptions::new(MODEL)).unwrap();
    call(&messages).await.unwrap_err();
    let probe = drain(messages.stream(ask("probe")));
    let there = async {
        clock.skip_retry_wait().await;
        connecting.notified().await;
        clock.sleeper_for(IDLE).await;
    };
    drop_when(probe, there).await;
    assert_free(&messages, &clock).await;
}

/// The events of a call before it hangs; `None` means no event.
async fn first_event(stream: &mut ModelStream) -> Option<ModelEvent> {
    stream.next().now_or_never().flatten().map(Result::unwrap)
}

/// Billing must know whether a dropped call was sent.
#[tokio::test]
async fn a_call_reports_sending_before_it_is_sent_and_not_while_limited() {
    let server = server(usize::MAX).await;
    let clock = ManualClock::new();
    let config = config(&server).with_http(|http| http.with_retries(0));
    let client = Client::with_clock(&config, Arc::new(clock.clone())).unwrap();
    let messages = client.messages(ModelOptions::new(MODEL)).unwrap();
    let mut first = messages.stream(ask("first"));
    assert_eq!(first_event(&mut first).await, Some(ModelEvent::Sent));
    assert_eq!(server.requests().len(), 0, "it is sent at the next poll of the stream");
    assert!(first.next().await.unwrap().is_err(), "the service has it, and refuses it");
    assert_eq!(server.requests().len(), 1);
    let mut limited = messages.stream(ask("second"));
    assert_eq!(first_event(&mut limited).await, Some(ModelEvent::Queued));
    assert_eq!(first_event(&mut limited).await, None);
    drop(limited);
    assert_eq!(server.requests().len(), 1);
}

/// Each attempt reports it.
#[tokio::test]
async fn a_call_reports_when_it_waits_for_a_retry() {
    let server = server(1).await;
    let (messages, clock) = client(&server);
    let (events, delays) =
        futures_util::future::join(drain(messages.stream(ask("Hi"))), clock.skip_retry_wait()).await;
    assert!(events.1.is_ok() && delays >= std::time::Duration::from_secs(2), "{events:?}");
    let first_events: Vec<_> = events.0.iter().take(4).collect();
    let [sent, waiting, again, ModelEvent::UsageReported(_)] = first_events[..] else {
        panic!("{first_events:?}")
    };
    assert_eq!([sent, waiting, again], [&ModelEvent::Sent, &ModelEvent::Queued, &ModelEvent::Sent]);
}

/// It has leave to be sent, and is not polled any more.
#[tokio::test]
async fn a_call_dropped_before_sending_releases_its_permit() {
    let server = server(1).await;
    let clock = ManualClock::new();
    let messages = rate_limited_client(&server, &clock).await;
    let mut probe = messages.stream(ask("probe"));
    let first_event = async {
        loop {
            tokio::select! {
                event = probe.next() => match event.unwrap().unwrap() {
                    ModelEvent::Queued => {}
                    other => break other,
                },
                _ = clock.skip_retry_wait() => {}
            }
        }
    };
    assert_eq!(first_event.await, ModelEvent::Sent);
    drop(probe);
    assert_free(&messages, &clock).await;
    assert_eq!(server.requests().len(), 2, "the probe was never sent");
}
