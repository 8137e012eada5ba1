//! Many sessions on one key share one limit, and do not all retry at once. This also holds for a limit in mid-stream.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_anthropic::{Client, ModelOptions};
use conjure_conversation::{HostedSkill, Model, ModelErrorKind, Request};
use serde_json::json;
use tokio::task::JoinSet;

use crate::clock::ManualClock;
use crate::events::{block, sse, start, text_delta, text_stream};
use crate::server::{Part, Server, error, stream};
use crate::support::{MODEL, ask, call, config, drain};

const SESSIONS: usize = 40;

/// A call with output is not retried, but other sessions of the key wait, as after a limit before the stream.
#[tokio::test]
async fn a_mid_stream_rate_limit_applies_to_all_calls() {
    for (kind, waits) in [("rate_limit_error", true), ("overloaded_error", true), ("api_error", false)] {
        let events = [
            start(),
            block(0, json!({"type": "text", "text": ""})),
            text_delta(0, "a"),
            json!({"type": "error", "error": {"type": kind, "message": "no"}}),
        ];
        let server = Server::answers(vec![stream(&sse(&events)), stream(&text_stream("Hello"))]).await;
        let clock = ManualClock::new();
        let client = Client::with_clock(&config(&server), Arc::new(clock.clone())).unwrap();
        let [first, second] = [(), ()].map(|()| client.messages(ModelOptions::new(MODEL)).unwrap());
        call(&first).await.unwrap_err();
        let waited = tokio::select! {
            biased;
            answer = call(&second) => answer.map(|_| None).unwrap(),
            waited = clock.skip_retry_wait() => Some(waited.as_millis()),
        };
        assert_eq!(waited.is_some(), waits, "{kind}");
        assert!(waited.is_none_or(|waited| (375..=550).contains(&waited)), "{waited:?}");
        assert_eq!(server.requests().len(), if waits { 1 } else { 2 }, "{kind}");
        call(&second).await.unwrap();
    }
}

/// A call that the service may have acted for is not sent again, but the others wait all the same.
#[tokio::test]
async fn a_mid_stream_rate_limit_of_a_hosted_call_applies_to_all() {
    let events = [start(), json!({"type": "error", "error": {"type": "overloaded_error", "message": "no"}})];
    let server = Server::answers(vec![stream(&sse(&events)), stream(&text_stream("Hello"))]).await;
    let clock = ManualClock::new();
    let client = Client::with_clock(&config(&server), Arc::new(clock.clone())).unwrap();
    let [first, second] = [(), ()].map(|()| client.messages(ModelOptions::new(MODEL)).unwrap());
    let hosted = Request { hosted: [HostedSkill::anthropic("xlsx")].into(), ..ask("Hi") };
    let error = drain(first.stream(hosted)).await.1.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::OutcomeUnknown);
    let has_waited = tokio::select! {
        biased;
        answer = call(&second) => answer.map(|_| false).unwrap(),
        _ = clock.skip_retry_wait() => true,
    };
    assert!(has_waited);
    assert_eq!(server.requests().len(), 1);
}

/// Forty sessions call at once; the service refuses the first forty requests and asks for ten seconds. Nobody
/// comes back within them; then one comes; and in the end all are answered, each with at most three attempts.
#[tokio::test]
async fn many_sessions_on_one_key_do_not_retry_at_once() {
    let clock = ManualClock::new();
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let (times, of_server) = (Arc::clone(&arrivals), clock.clone());
    let (probe_answer, probe_wait) = tokio::sync::oneshot::channel();
    let probe_wait = Mutex::new(Some(probe_wait));
    let server = Server::start(move |n, _| {
        times.lock().unwrap().push(of_server.elapsed());
        match n {
            0..SESSIONS => {
                vec![Part::Bytes(error("429 x", &[("retry-after", "10")], "rate_limit_error", "wait"))]
            }
            SESSIONS => {
                let wait = probe_wait.lock().unwrap().take().unwrap();
                vec![Part::Until(wait), Part::Bytes(stream(&text_stream("Hello")))]
            }
            _ => vec![Part::Bytes(stream(&text_stream("Hello")))],
        }
    })
    .await;
    let client = Client::with_clock(&config(&server), Arc::new(clock.clone())).unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    let mut sessions = JoinSet::new();
    for session in 0..SESSIONS {
        // Each session has a model of its own; the key makes them one.
        let messages = client.messages(ModelOptions::new(MODEL)).unwrap();
        let answered = Arc::clone(&answered);
        sessions.spawn(async move {
            drain(messages.stream(ask(&session.to_string()))).await.1.unwrap();
            answered.fetch_add(1, Ordering::SeqCst);
        });
    }
    server.received(SESSIONS).await;
    // Not one waits by itself: the only short wait is that of the first in the queue.
    let waited = clock.skip_retry_wait().await;
    assert!((10.0..=11.0).contains(&waited.as_secs_f64()), "{waited:?}");
    let drive = async {
        loop {
            // Refusals that were under way when the gate closed may have lengthened the wait.
            clock.skip_retry_wait().await;
        }
    };
    tokio::select! {
        () = server.received(SESSIONS + 1) => {}
        () = drive => unreachable!(),
    }
    assert_eq!(server.requests().len(), SESSIONS + 1, "one probe, and no other call before its response");
    assert_eq!(answered.load(Ordering::SeqCst), 0);
    probe_answer.send(()).unwrap();
    while let Some(session) = sessions.join_next().await {
        session.unwrap();
    }
    let arrivals = arrivals.lock().unwrap();
    assert_eq!(arrivals.len(), 2 * SESSIONS, "no call was rejected twice");
    assert!(arrivals[SESSIONS..].iter().all(|time| *time >= Duration::from_secs(10)), "{arrivals:?}");
}
