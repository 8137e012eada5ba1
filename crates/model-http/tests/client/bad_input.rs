//! What is no answer: each ends in time, with an error that says what is wrong.

use std::time::Duration;

use conjure_conversation::{ApiErrorKind, ModelErrorKind};
use conjure_model_http::{HttpConfig, ResponseLimits, Timeouts};

use crate::server::{Reply, Server, answer, stream};
use crate::text_wire::{config, result};

/// How a call ends that is answered so.
async fn failure(reply: Reply, change: impl Fn(HttpConfig) -> HttpConfig) -> (ModelErrorKind, String) {
    let server = Server::start(vec![reply]).await;
    let failed = result(&change(config(&server.url))).await.unwrap_err();
    (failed.kind, failed.message)
}

const HTML: [(&str, &str); 1] = [("content-type", "text/html")];

#[tokio::test]
async fn a_page_of_html_names_the_api_that_was_expected() {
    let page = "<html><h1>Welcome to the hotel</h1></html>";
    let (kind, message) = failure(Reply::Bytes(answer("200 OK", &HTML, page)), |config| config).await;
    assert_eq!(kind, ModelErrorKind::Protocol);
    assert_eq!(
        message,
        "the service did not answer with a stream of events; is the base URL that of the API of texts? \
         It begins: Welcome to the hotel"
    );
}

#[tokio::test]
async fn json_in_place_of_a_stream_is_an_answer_or_an_error_or_says_what_it_lacks() {
    const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
    let body = |body: &str| Reply::Bytes(answer("200 OK", &JSON, body));
    let reported = body(r#"{"error":{"type":"billing_error","message":"pay first"}}"#);
    let (kind, message) = failure(reported, |config| config).await;
    assert_eq!(kind, ModelErrorKind::Api(ApiErrorKind::Billing));
    assert_eq!(message, "the service answered 200 with an error (billing_error): pay first");
    let (kind, message) = failure(body(r#"{"x":1}"#), |config| config).await;
    assert_eq!(kind, ModelErrorKind::Protocol);
    assert_eq!(
        message,
        "the service did not answer with a message (it has no text); is the base URL that of the API of texts? \
         It begins: {\"x\":1}"
    );
    let limits = |config: HttpConfig| config.with_limits(ResponseLimits { event: 10_000, total: 100_000 });
    let endless = Reply::Forever(answer("200 OK", &JSON, "["), b"1,".to_vec());
    assert_eq!(failure(endless, limits).await.1, "the answer is larger than 100000 bytes");
}

#[tokio::test]
async fn a_wrong_base_url_is_a_question() {
    for (status, expected) in [
        ("404 Not Found", "(not_found_error): nothing here; is the base URL that of the API of texts?"),
        ("405 No", "(invalid_request_error): nothing here; is the base URL that of the API of texts?"),
        (
            "301 Moved",
            "(status_301): nothing here; the address redirects: set the base URL of the API of texts itself",
        ),
    ] {
        let reply = Reply::Bytes(answer(status, &HTML, "<p>nothing here</p>"));
        let (_, message) = failure(reply, |config| config).await;
        assert!(message.ends_with(expected), "{message}");
    }
}

#[tokio::test]
async fn a_stream_that_ends_in_the_middle_is_truncated() {
    for events in [&[][..], &["Hel"], &["Hel", "lo"]] {
        let (kind, message) = failure(Reply::Bytes(stream(events)), |config| config).await;
        assert_eq!(kind, ModelErrorKind::Truncated, "{message}");
    }
    let head = [("content-type", "text/event-stream"), ("content-length", "1000")];
    let broken = Reply::Bytes(answer("200 OK", &head, "data: Hel\n\n"));
    assert_eq!(failure(broken, |config| config).await.0, ModelErrorKind::Truncated);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_not_read_on() {
    let limits = |config: HttpConfig| config.with_limits(ResponseLimits { event: 10_000, total: 100_000 });
    let endless = |bytes: &[u8]| Reply::Forever(stream(&["Hel"]), bytes.to_vec());
    let (kind, message) = failure(endless(b": a comment\n\n"), limits).await;
    assert_eq!(
        (kind, message.as_str()),
        (ModelErrorKind::Protocol, "the answer is larger than 100000 bytes")
    );
    let (kind, message) = failure(endless(b"xxxxxxxx"), limits).await;
    assert_eq!(kind, ModelErrorKind::Protocol);
    assert_eq!(message, "an event of the stream is larger than 10000 bytes");
    // Of an error's body, the beginning is enough.
    let page = Reply::Forever(answer("500 Oops", &HTML, "oops"), b" oops".to_vec());
    assert_eq!(failure(page, limits).await.0, ModelErrorKind::Api(ApiErrorKind::Api));
}

#[tokio::test]
async fn a_server_that_never_answers_is_left_in_time() {
    let quick = |config: HttpConfig| {
        let idle = Duration::from_millis(20);
        config.with_timeouts(Timeouts { idle, ..Timeouts::default() })
    };
    for (sent, expected) in [
        (Vec::new(), "the service did not begin to answer within 20ms"),
        (stream(&["Hel"]), "the service sent nothing for 20ms in mid-answer"),
    ] {
        let (kind, message) = failure(Reply::Hang(sent), quick).await;
        assert_eq!((kind, message.as_str()), (ModelErrorKind::Timeout, expected));
    }
    let total = |config: HttpConfig| {
        let total = Duration::from_millis(20);
        config.with_timeouts(Timeouts { total, ..Timeouts::default() })
    };
    let (kind, message) = failure(Reply::Hang(Vec::new()), total).await;
    assert_eq!((kind, message.as_str()), (ModelErrorKind::Timeout, "the call took longer than 20ms"));
}
