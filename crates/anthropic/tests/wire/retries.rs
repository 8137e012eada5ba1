//! Errors and retries with a manual clock: which errors are retried, how often, and after which delay.

use std::time::Duration;

use conjure_conversation::{ApiErrorKind, Model, ModelError, ModelErrorKind, Response};
use serde_json::{Value, json};

use crate::clock::ManualClock;
use crate::events::{block, ping, sse, start, text_delta, text_stream};
use crate::server::{Server, answer, error, stream};
use crate::support::{ask, call, client, config, drain, messages, text};

/// The call that is answered so, and the waits between its attempts in milliseconds.
async fn attempts(answers: Vec<Vec<u8>>) -> (Result<Response, ModelError>, Vec<u128>, usize) {
    let server = Server::answers(answers).await;
    let (messages, clock) = client(&server);
    let mut delays = Vec::new();
    let result = {
        let skip = async {
            loop {
                delays.push(clock.skip_retry_wait().await.as_millis());
            }
        };
        tokio::select! {
            biased;
            result = call(&messages) => result,
            () = skip => unreachable!(),
        }
    };
    (result, delays, server.requests().len())
}

fn good_response() -> Vec<u8> {
    stream(&text_stream("Hello"))
}

fn overloaded() -> Vec<u8> {
    error("529 Overloaded", &[], "overloaded_error", "Overloaded")
}

#[tokio::test]
async fn two_retries_with_growing_delays_precede_the_error() {
    let (result, delays, requests) = attempts(vec![overloaded(), overloaded(), good_response()]).await;
    assert_eq!(text(&result.unwrap()), "Hello");
    assert_eq!(requests, 3);
    // The limiter adds up to a tenth to what is to be waited for all.
    assert!((375..=550).contains(&delays[0]) && (750..=1100).contains(&delays[1]), "{delays:?}");

    let (result, _, requests) = attempts(vec![overloaded()]).await;
    assert_eq!(result.unwrap_err().kind, ModelErrorKind::Api(ApiErrorKind::Overloaded));
    assert_eq!(requests, 3);
}

#[tokio::test]
async fn the_status_decides_about_retries() {
    for (status, tries) in [
        ("408 x", 2),
        ("409 x", 2),
        ("429 x", 2),
        ("500 x", 2),
        ("502 x", 2),
        ("503 x", 2),
        ("529 x", 2),
        ("400 x", 1),
        ("401 x", 1),
        ("403 x", 1),
        ("404 x", 1),
        ("413 x", 1),
        ("422 x", 1),
        ("302 x", 1),
    ] {
        let (result, _, requests) = attempts(vec![answer(status, &[], ""), good_response()]).await;
        assert_eq!((requests, result.is_ok()), (tries, tries == 2), "{status}");
    }
}

#[tokio::test]
async fn the_services_retry_advice_takes_precedence() {
    let refused = error("529 x", &[("x-should-retry", "false")], "overloaded_error", "no");
    assert_eq!(attempts(vec![refused, good_response()]).await.2, 1);
    let wanted = error("400 x", &[("x-should-retry", "true")], "invalid_request_error", "yes");
    let (result, _, requests) = attempts(vec![wanted, good_response()]).await;
    assert_eq!((requests, result.is_ok()), (2, true));
}

#[tokio::test]
async fn retry_after_is_respected() {
    for (headers, expected) in [
        (&[("retry-after-ms", "1234"), ("retry-after", "9")][..], 1234),
        (&[("retry-after", "7")], 7000),
        (&[("retry-after", "0.5")], 500),
        (&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], 7000),
    ] {
        let (result, delays, _) =
            attempts(vec![error("503 x", headers, "api_error", "wait"), good_response()]).await;
        assert!(result.is_ok());
        assert_eq!(delays[0], expected, "{headers:?}");
        // The limiter's wait for a whole key has jitter on top, never below.
        let (_, delays, _) =
            attempts(vec![error("429 x", headers, "rate_limit_error", "wait"), good_response()]).await;
        assert!((expected..=expected + expected / 10).contains(&delays[0]), "{headers:?}: {delays:?}");
    }
}

#[tokio::test]
async fn no_wait_extends_beyond_the_deadline() {
    for (status, kind) in [("429 x", "rate_limit_error"), ("503 x", "api_error")] {
        let (result, delays, requests) =
            attempts(vec![error(status, &[("retry-after", "3600")], kind, "later")]).await;
        let failed = result.unwrap_err();
        assert_eq!((requests, delays.len()), (1, 0), "{status}");
        assert!(failed.retry_after.unwrap() >= Duration::from_secs(3600), "{failed:?}");
        assert_eq!(failed.request_id.as_deref(), Some("req_e"));
    }
}

fn mid_stream(events: &[Value]) -> Vec<u8> {
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let mut all = events.to_vec();
    all.push(error);
    stream(&sse(&all))
}

#[tokio::test]
async fn mid_stream_overload_is_retried_only_before_output() {
    let empty = |kind: &str| block(0, json!({"type": kind, kind: ""}));
    let tool = |kind: &str| block(0, json!({"type": kind, "id": "a", "name": "t", "input": {}}));
    for unseen in [
        vec![],
        vec![start()],
        vec![start(), ping()],
        vec![start(), empty("text")],
        vec![start(), empty("thinking")],
    ] {
        let (result, _, requests) = attempts(vec![mid_stream(&unseen), good_response()]).await;
        assert_eq!((requests, result.is_ok()), (2, true), "{unseen:?}");
    }
    let body = error("200 OK", &[], "overloaded_error", "Overloaded");
    let (result, _, requests) = attempts(vec![body, good_response()]).await;
    assert_eq!((requests, result.is_ok()), (2, true), "in place of a stream");
    for events in [
        vec![start(), empty("text"), text_delta(0, "a")],
        vec![start(), tool("tool_use")],
        vec![start(), tool("server_tool_use")],
    ] {
        let (result, _, requests) = attempts(vec![mid_stream(&events), good_response()]).await;
        assert_eq!(requests, 1, "{events:?}");
        assert_eq!(result.unwrap_err().kind, ModelErrorKind::Api(ApiErrorKind::Overloaded));
    }
}

#[tokio::test]
async fn a_truncated_stream_is_retried_only_before_output() {
    for unseen in [String::new(), sse(&[start(), ping()])] {
        let (result, _, requests) = attempts(vec![stream(&unseen), good_response()]).await;
        assert_eq!((requests, result.is_ok()), (2, true), "{unseen:?}");
    }
    let events = [start(), block(0, json!({"type": "text", "text": ""})), text_delta(0, "a")];
    let (result, _, requests) = attempts(vec![stream(&sse(&events)), good_response()]).await;
    assert_eq!((requests, result.unwrap_err().kind), (1, ModelErrorKind::Truncated));
}

#[tokio::test]
async fn an_invalid_request_in_mid_stream_is_final() {
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}});
    assert_eq!(attempts(vec![stream(&sse(&[start(), error])), good_response()]).await.2, 1);
}

#[tokio::test]
async fn a_broken_connection_is_retried() {
    let (result, delays, requests) = attempts(vec![Vec::new(), good_response()]).await;
    assert_eq!((requests, result.is_ok()), (2, true), "{delays:?}");
}

#[tokio::test]
async fn the_same_seed_gives_the_same_waits() {
    let first = attempts(vec![overloaded()]).await.1;
    assert_eq!(first, attempts(vec![overloaded()]).await.1);
}

#[tokio::test]
async fn without_retries_there_is_one_attempt() {
    let server = Server::always(overloaded()).await;
    let messages = messages(&config(&server).with_http(|http| http.with_retries(0)), &ManualClock::new());
    drain(messages.stream(ask("Hi"))).await.1.unwrap_err();
    assert_eq!(server.requests().len(), 1);
}
