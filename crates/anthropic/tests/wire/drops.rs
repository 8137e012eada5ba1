//! Calls that are dropped where they hold, or wait for, a place at the limiter: the others go on at once.

use std::future::Future;
use std::sync::Arc;

use conjure_anthropic::{Client, Messages, Options};
use conjure_conversation::Model;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::clock::ManualClock;
use crate::events::saying;
use crate::server::{Part, Server, error, stream};
use crate::support::{IDLE, MODEL, TOTAL, ask, call, config, drain, text};
use crate::tls::localhost;

fn limited() -> Part {
    Part::Bytes(error("429 x", &[("retry-after", "2")], "rate_limit_error", "wait"))
}

fn good() -> Part {
    Part::Bytes(stream(&saying("Hello")))
}

/// Request 0 is told to wait, those after it hang, and from `then` on all are well.
async fn server(then: usize) -> Server {
    Server::start(move |n, _| match n {
        0 => vec![limited()],
        n if n < then => vec![Part::Hang],
        _ => vec![good()],
    })
    .await
}

/// A model whose key was just told to wait.
async fn told_to_wait(server: &Server, clock: &ManualClock) -> Messages {
    let config = config(server).with_retries(0);
    let client = Client::with_clock(&config, Arc::new(clock.clone())).unwrap();
    let messages = client.messages(Options::new(MODEL)).unwrap();
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
async fn dropped_while_the_gate_is_closed() {
    let (server, clock) = (server(1).await, ManualClock::new());
    let messages = told_to_wait(&server, &clock).await;
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
async fn a_probe_dropped_before_its_head_came() {
    let (server, clock) = (server(2).await, ManualClock::new());
    let messages = told_to_wait(&server, &clock).await;
    let probe = drain(messages.stream(ask("probe")));
    let there = async {
        clock.skip_retry_wait().await;
        server.received(2).await;
    };
    drop_when(probe, there).await;
    assert_free(&messages, &clock).await;
}

#[tokio::test]
async fn a_probe_dropped_within_create() {
    let (server, clock) = (server(2).await, ManualClock::new());
    let messages = told_to_wait(&server, &clock).await;
    let request = ask("probe");
    let there = async {
        clock.skip_retry_wait().await;
        server.received(2).await;
    };
    drop_when(messages.create(&request), there).await;
    assert_free(&messages, &clock).await;
}

#[tokio::test]
async fn dropped_during_its_own_backoff() {
    let server = Server::start(|n, _| match n {
        0 => vec![Part::Bytes(error("500 x", &[("retry-after", "3")], "api_error", "oops"))],
        _ => vec![good()],
    })
    .await;
    let clock = ManualClock::new();
    let client = Client::with_clock(&config(&server), Arc::new(clock.clone())).unwrap();
    let messages = client.messages(Options::new(MODEL)).unwrap();
    let waiting = drain(messages.stream(ask("first")));
    drop_when(waiting, clock.sleeper_for(std::time::Duration::from_secs(3))).await;
    assert_free(&messages, &clock).await;
    assert_eq!(server.requests().len(), 2);
}

/// The first connection is told to wait, the second never gets through its handshake.
#[tokio::test]
async fn a_probe_dropped_while_it_connects() {
    let (root, acceptor) = localhost();
    let inner = server(1).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (connecting, target) = (Arc::new(Notify::new()), inner.address);
    let noticed = Arc::clone(&connecting);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        let mut silent = Vec::new();
        for n in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            if n == 1 {
                silent.push(stream);
                noticed.notify_one();
                continue;
            }
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                let mut stream = acceptor.accept(stream).await.unwrap();
                let mut server = tokio::net::TcpStream::connect(target).await.unwrap();
                // The client leaves in whatever way it likes.
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
            });
        }
    });
    let clock = ManualClock::new();
    let config =
        config(&inner).with_base_url(format!("https://localhost:{port}")).with_root(root).with_retries(0);
    let client = Client::with_clock(&config, Arc::new(clock.clone())).unwrap();
    let messages = client.messages(Options::new(MODEL)).unwrap();
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
