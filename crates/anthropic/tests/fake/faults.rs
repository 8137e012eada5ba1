//! Faults that the fake injects on purpose.

use std::time::Duration;

use conjure_anthropic::fake::{FakeMessages, RateLimit, Refusal, Reply};
use conjure_conversation::{ApiErrorKind, Block};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::support::{LONG, body, call, open, post, script, start, streamed, user};

fn text_reply() -> Reply {
    Reply::blocks(vec![Block::text("eins zwei drei vier")])
}

#[tokio::test]
async fn every_type_of_error_has_its_status_and_carries_its_headers() {
    let kinds = [
        (ApiErrorKind::InvalidRequest, 400),
        (ApiErrorKind::Authentication, 401),
        (ApiErrorKind::Billing, 402),
        (ApiErrorKind::Permission, 403),
        (ApiErrorKind::NotFound, 404),
        (ApiErrorKind::RateLimit, 429),
        (ApiErrorKind::Api, 500),
        (ApiErrorKind::Timeout, 504),
        (ApiErrorKind::Overloaded, 529),
    ];
    let faults = kinds.clone().map(|(kind, _)| {
        Reply::error(Refusal::new(kind, "so it is"))
            .with_header("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")
            .with_header("retry-after-ms", "20")
            .with_header("x-should-retry", "true")
            .with_request_id("req_1")
    });
    let fake = start(FakeMessages::builder().faults(faults)).await;
    for (kind, status) in kinds {
        let answered = post(&fake, &streamed([user("Hi")])).await;
        assert_eq!(answered.status, status);
        let expected = json!({
            "type": "error", "error": {"type": String::from(kind), "message": "so it is"}, "request_id": "req_1",
        });
        assert_eq!(answered.json(), expected);
        assert_eq!(answered.header("retry-after"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(answered.header("retry-after-ms"), Some("20"));
        assert_eq!(answered.header("x-should-retry"), Some("true"));
    }
}

#[tokio::test]
async fn streams_fail_after_the_configured_piece() {
    let blocks = || Reply::blocks(vec![Block::text("abcd"), call("a", "t", &json!({"x": 1}))]);
    let overloaded = Refusal::new(ApiErrorKind::Overloaded, "Overloaded");
    let faults = [
        blocks().cut_after_pieces(0),
        blocks().cut_after_pieces(2),
        blocks().cut_after_pieces(5),
        blocks().error_after_pieces(4, overloaded),
        blocks().with_unfinished_input(1),
    ];
    let fake = start(FakeMessages::builder().faults(faults)).await;
    let last_of = async || {
        let answered = post(&fake, &streamed([user("Hi")])).await;
        let last = answered.events().last().unwrap().1.clone();
        (answered.is_whole, last, answered)
    };
    let (is_whole, last, _) = last_of().await;
    assert_eq!((is_whole, &last["type"]), (false, &json!("message_start")));
    let (is_whole, last, _) = last_of().await;
    assert_eq!((is_whole, &last["delta"]["text"]), (false, &json!("b")));
    let (is_whole, last, _) = last_of().await;
    assert_eq!((is_whole, &last["delta"]["partial_json"]), (false, &json!("")));
    let (is_whole, last, _) = last_of().await;
    assert_eq!((is_whole, &last["error"]["type"]), (true, &json!("overloaded_error")));
    let (_, last, answered) = last_of().await;
    assert_eq!(last["type"], "message_stop");
    let inputs: Vec<_> = answered
        .events()
        .iter()
        .filter(|(_, data)| data["delta"]["type"] == "input_json_delta")
        .map(|(_, data)| data["delta"]["partial_json"].clone())
        .collect();
    assert_eq!(inputs, ["", "{\""]);
}

#[tokio::test]
async fn a_script_truncates_and_fails_as_configured() {
    let text = "
version: 1
turns:
  - {error: {type: rate_limit_error, message: slow down, retry_after_ms: 1500}}
  - {error: {type: connection}}
  - {content: abcd, cut_after: 2}
  - {content: abcd, error: {type: overloaded_error, after_pieces: 3}}
  - {expect: {user: {contains: nothing}}, content: never}
";
    let fake = start(FakeMessages::builder().script(script(text))).await;
    let body = streamed([user("Hi")]);
    let limited = post(&fake, &body).await;
    assert_eq!(
        (limited.status, limited.header("retry-after"), limited.header("retry-after-ms")),
        (429, Some("2"), Some("1500"))
    );
    let mut stream = open(&fake, &body).await;
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received).await;
    assert!(received.is_empty(), "the connection closes without an answer");
    let cut = post(&fake, &body).await;
    assert_eq!((cut.is_whole, cut.events().len()), (false, 5));
    let broken = post(&fake, &body).await;
    assert_eq!(broken.events().last().unwrap().0, "error");
    let unexpected = post(&fake, &body).await;
    assert_eq!((unexpected.status, unexpected.header("x-should-retry")), (400, Some("false")));
    assert!(unexpected.message().contains("expect.user"), "{}", unexpected.message());
}

#[tokio::test]
async fn bodies_travel_in_pieces_of_any_size_and_are_cut_at_any_byte() {
    let faults = [
        text_reply().with_chunk_size(7),
        text_reply().with_chunk_size(7).cut_after_bytes(30),
        Reply::html(502),
        Reply::empty(),
    ];
    let fake = start(FakeMessages::builder().faults(faults).turns([text_reply()])).await;
    let plain = post(&fake, &streamed([user("Hi")])).await;
    assert!(plain.chunks.iter().rev().skip(1).all(|chunk| chunk.len() == 7), "{:?}", plain.chunks);
    assert_eq!(plain.events().last().unwrap().0, "message_stop");
    let cut = post(&fake, &streamed([user("Hi")])).await;
    assert_eq!((cut.is_whole, cut.chunks.concat().len()), (false, 30));
    let html = post(&fake, &streamed([user("Hi")])).await;
    assert_eq!((html.status, html.header("content-type")), (502, Some("text/html")));
    let empty = post(&fake, &streamed([user("Hi")])).await;
    assert_eq!((empty.status, empty.text().as_str(), empty.header("content-type")), (200, "", None));
}

#[tokio::test]
async fn stopping_or_dropping_a_fake_ends_open_requests() {
    let fake = start(FakeMessages::builder().turns([Reply::silence()])).await;
    let address = fake.base_url().strip_prefix("http://").unwrap().to_owned();
    let connection = open(&fake, &streamed([user("Hi")])).await;
    fake.until_received(1).await;
    tokio::time::timeout(LONG, fake.stop()).await.unwrap();
    assert!(TcpStream::connect(&address).await.is_err());
    drop(connection);
    let fake = start(FakeMessages::builder()).await;
    let address = fake.base_url().strip_prefix("http://").unwrap().to_owned();
    let mut open = TcpStream::connect(&address).await.unwrap();
    drop(fake);
    let read = tokio::time::timeout(LONG, open.read(&mut [0; 1])).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn a_key_is_limited_to_n_requests_per_window() {
    let limit = RateLimit { requests: 2, window: Duration::from_secs(3600) };
    let fake = start(FakeMessages::builder().rate_limit(limit).turns([text_reply()])).await;
    let body = body([user("Hi")]);
    let first = post(&fake, &body).await;
    assert_eq!((first.status, first.header("anthropic-ratelimit-requests-remaining")), (200, Some("1")));
    assert_eq!(post(&fake, &body).await.status, 200);
    let refused = post(&fake, &body).await;
    assert_eq!((refused.status, refused.json()["error"]["type"].as_str()), (429, Some("rate_limit_error")));
    assert!((1..=3600).contains(&refused.header("retry-after").unwrap().parse::<u64>().unwrap()));
    let statuses: Vec<_> = fake.requests().iter().map(|request| request.status()).collect();
    assert_eq!(statuses, [Some(200), Some(200), Some(429)]);
}
