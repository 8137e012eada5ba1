//! Failures: each ends in time, with a typed error that shows no secret.

use std::net::Ipv4Addr;
use std::time::Duration;

use conjure_anthropic::{ResponseLimits, Timeouts};
use conjure_conversation::{ApiErrorKind, Model, ModelError, ModelErrorKind, ModelEvent};
use futures_util::StreamExt;
use serde_json::json;
use tokio::net::TcpSocket;

use crate::clock::ManualClock;
use crate::events::{block, ping, sse, start, text_delta, text_stream};
use crate::server::{Part, Server, answer, error, stream};
use crate::support::{IDLE, KEY, TOTAL, ask, call, client, config, drain, messages, text};

/// How the call ends that is answered so, without retries.
async fn failure(answer: Vec<u8>) -> ModelError {
    let server = Server::always(answer).await;
    let messages = messages(&config(&server).with_http(|http| http.with_retries(0)), &ManualClock::new());
    let error = call(&messages).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    error
}

#[tokio::test]
async fn each_error_type_has_its_kind_and_its_request_id() {
    for (status, name, kind) in [
        ("400 Bad Request", "invalid_request_error", ApiErrorKind::InvalidRequest),
        ("401 Unauthorized", "authentication_error", ApiErrorKind::Authentication),
        ("402 Payment Required", "billing_error", ApiErrorKind::Billing),
        ("403 Forbidden", "permission_error", ApiErrorKind::Permission),
        ("404 Not Found", "not_found_error", ApiErrorKind::NotFound),
        ("413 Too Large", "request_too_large", ApiErrorKind::Unknown("request_too_large".to_owned())),
        ("429 Too Many", "rate_limit_error", ApiErrorKind::RateLimit),
        ("500 Oops", "api_error", ApiErrorKind::Api),
        ("504 Timeout", "timeout_error", ApiErrorKind::Timeout),
        ("529 Overloaded", "overloaded_error", ApiErrorKind::Overloaded),
    ] {
        let failure = failure(error(status, &[], name, "messages.3.content.1: too large")).await;
        assert_eq!(failure.kind, ModelErrorKind::Api(kind));
        assert_eq!(failure.request_id.as_deref(), Some("req_e"));
        let status = &status[..3];
        let expected = format!("the service answered {status} ({name}): messages.3.content.1: too large");
        assert_eq!(failure.message, expected);
    }
}

#[tokio::test]
async fn an_html_error_page_is_reported_with_status_and_excerpt() {
    let page = format!(
        "<html><head><title>502 Bad\nGateway</title></head><body>{}</body></html>",
        "<p>nginx</p>".repeat(999)
    );
    let failed = failure(answer("502 Bad Gateway", &[("content-type", "text/html")], &page)).await;
    assert_eq!(failed.kind, ModelErrorKind::Api(ApiErrorKind::Api));
    assert!(failed.message.contains("502 (api_error): 502 Bad Gateway nginx nginx"), "{failed}");
    assert!(failed.message.len() < 300, "{failed}");
    for status in ["401 No", "404 No", "429 No", "529 No", "302 Found"] {
        let failed = failure(answer(status, &[], "")).await;
        assert!(failed.message.contains(&status[..3]) && failed.message.contains("(no text)"), "{failed}");
    }
}

#[tokio::test]
async fn a_success_without_a_stream_is_a_protocol_error() {
    for (headers, body) in [
        (&[("content-type", "text/html")][..], "<h1>Welcome to the hotel wireless</h1>"),
        (&[("content-type", "application/json")], "{}"),
        (&[], ""),
        (&[("content-type", "text/event-stream")], "data: <html>\n\n"),
        (&[("content-type", "text/event-stream")], "data: \u{0}\n\n"),
    ] {
        let failed = failure(answer("200 OK", headers, body)).await;
        assert_eq!(failed.kind, ModelErrorKind::Protocol, "{body}: {failed}");
        if body.contains("hotel") {
            let expected = "the service did not answer with a stream of events; is the base URL that of the \
                            Messages API? It begins: Welcome to the hotel wireless";
            assert_eq!(failed.message, expected);
        }
    }
    let invalid =
        [answer("200 OK", &[("content-type", "text/event-stream")], "data: "), b"\xFF\n\n".to_vec()].concat();
    assert_eq!(failure(invalid).await.kind, ModelErrorKind::Protocol);
    assert_eq!(failure(b"I am no HTTP server\r\n\r\n".to_vec()).await.kind, ModelErrorKind::Connection);
    assert_eq!(failure(Vec::new()).await.kind, ModelErrorKind::Connection);
}

#[tokio::test]
async fn an_invalid_unstreamed_response_is_a_protocol_error() {
    for body in ["", "<html>", "{}", r#"{"type":"completion"}"#, r#"{"type":"message","content":[{}]}"#] {
        let head = [("content-type", "application/json"), ("request-id", "req_p")];
        let failed = failure(answer("200 OK", &head, body)).await;
        assert_eq!(failed.kind, ModelErrorKind::Protocol, "{body}: {failed}");
        assert_eq!(failed.request_id.as_deref(), Some("req_p"));
    }
}

#[tokio::test]
async fn a_truncated_stream_reports_its_request_id() {
    let complete = text_stream("Hello");
    let events: Vec<&str> = complete.split_inclusive("\n\n").collect();
    for count in 0..events.len() {
        let failed = failure(stream(&events[..count].concat())).await;
        assert_eq!(failed.kind, ModelErrorKind::Truncated, "after {count} events: {failed}");
        assert_eq!(failed.request_id.as_deref(), Some("req_1"));
    }
    // Cut by the transport: a body that promises more than comes.
    let head = [("content-type", "text/event-stream"), ("content-length", "100000")];
    assert_eq!(failure(answer("200 OK", &head, &complete[..200])).await.kind, ModelErrorKind::Truncated);
}

/// Errors as llama.cpp sends them in a stream, and as some servers send them with status 200.
#[tokio::test]
async fn an_error_in_another_format_keeps_its_message() {
    let event = "event: error\ndata: {\"code\":500,\"message\":\"empty grammar stack\",\"type\":\"server_error\"}\n\n";
    let failed = failure(stream(&(sse(&[start()]) + event))).await;
    assert_eq!(failed.kind, ModelErrorKind::Api(ApiErrorKind::Api));
    assert_eq!(failed.request_id.as_deref(), Some("req_1"));
    assert_eq!(
        failed.message,
        "the service reported an error in mid-stream (api_error): empty grammar stack"
    );
    let body = r#"{"error":{"code":400,"message":"the context is full","type":"exceed_context_size_error"}}"#;
    let failed = failure(answer("200 OK", &[("content-type", "application/json")], body)).await;
    assert_eq!(failed.kind, ModelErrorKind::Api(ApiErrorKind::InvalidRequest));
    assert!(
        failed.message.contains("200 with an error (invalid_request_error): the context is full"),
        "{failed}"
    );
    for (status, hint) in [
        ("404 Not Found", "is the base URL that of the Messages API?"),
        ("405 No", "is the base URL that of the Messages API?"),
        ("301 Moved", "the address redirects: set the base URL of the Messages API itself"),
    ] {
        let failed = failure(answer(status, &[("content-type", "text/html")], "<h1>nginx</h1>")).await;
        assert!(failed.message.ends_with(&format!("nginx; {hint}")), "{failed}");
    }
}

#[tokio::test]
async fn a_key_that_the_service_echoes_is_redacted() {
    let message = failure(error("401 No", &[], "authentication_error", &format!("invalid key {KEY}"))).await;
    assert!(message.message.ends_with("invalid key [REDACTED:ANTHROPIC_API_KEY]"), "{message}");
    let page = format!("<p>{KEY}</p>");
    failure(answer("401 No", &[("request-id", KEY)], &page)).await;
    failure(error("400 No", &[], KEY, "x")).await;
    failure(answer("200 OK", &[], &page)).await;
    let event = json!({"type": "error", "error": {"type": KEY, "message": KEY}});
    failure(stream(&sse(&[start(), event]))).await;
    failure(stream(&sse(&[
        start(),
        json!({"type": "content_block_start", "index": 0, "content_block": KEY}),
    ])))
    .await;
}

#[tokio::test]
async fn an_unreachable_service_is_a_connection_error() {
    // No other program can listen at the port while this socket holds it.
    let unused_socket = TcpSocket::new_v4().unwrap();
    unused_socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let server = Server::always("").await;
    let url = format!("http://{}", unused_socket.local_addr().unwrap());
    let config = config(&server).with_base_url(url).with_http(|http| http.with_retries(0));
    let failed = call(&messages(&config, &ManualClock::new())).await.unwrap_err();
    assert_eq!(failed.kind, ModelErrorKind::Connection);
    assert!(failed.message.contains("check the base URL"), "{failed}");
    // Something answers there, but it does not speak TLS.
    let (root, _) = test_support::authority(&["localhost"]);
    let timeouts = Timeouts { connect: Duration::from_secs(1), ..Timeouts::default() };
    let config = config
        .with_base_url(server.url().replace("http://", "https://"))
        .with_http(|http| http.with_root(root).with_timeouts(timeouts));
    let failed = call(&messages(&config, &ManualClock::new())).await.unwrap_err();
    assert_eq!(failed.kind, ModelErrorKind::Connection, "{failed}");
}

/// The call is answered so; as soon as it waits, its idle time passes.
async fn assert_times_out(
    parts: impl Fn() -> Vec<Part> + Send + Sync + 'static,
    wait: Duration,
) -> ModelError {
    let server = Server::start(move |_, _| parts()).await;
    let clock = ManualClock::new();
    let messages = messages(&config(&server).with_http(|http| http.with_retries(0)), &clock);
    let watch = async {
        server.received(1).await;
        // Sent bytes may still be in flight when the clock advances. Then the wait starts again.
        loop {
            clock.sleeper_for(wait).await;
            clock.advance(wait);
        }
    };
    let failed = tokio::select! {
        biased;
        failed = call(&messages) => failed.unwrap_err(),
        () = watch => unreachable!(),
    };
    server.disconnected(1).await;
    failed
}

#[tokio::test]
async fn a_silent_service_times_out_after_the_idle_timeout() {
    for parts in [
        || vec![Part::Hang],
        || vec![Part::Bytes(stream("")), Part::Hang],
        || vec![Part::Bytes(stream(&sse(&[start(), ping()]))), Part::Hang],
    ] {
        let failed = assert_times_out(parts, IDLE).await;
        assert_eq!(failed.kind, ModelErrorKind::Timeout, "{failed}");
    }
}

#[tokio::test]
async fn reading_an_error_body_times_out() {
    let head = || vec![Part::Bytes(answer("500 Oops", &[("content-length", "100")], "half")), Part::Hang];
    let failed = assert_times_out(head, Duration::from_secs(5)).await;
    assert_eq!(failed.kind, ModelErrorKind::Api(ApiErrorKind::Api));
}

#[tokio::test]
async fn a_slow_service_times_out_after_the_total_timeout() {
    let (mut sends, receives): (Vec<_>, Vec<_>) = (0..10).map(|_| tokio::sync::oneshot::channel()).unzip();
    let receives = std::sync::Mutex::new(receives);
    let server = Server::start(move |_, _| {
        let begin = [start(), block(0, json!({"type": "text", "text": ""}))];
        let mut parts = vec![Part::Bytes(stream(&sse(&begin)))];
        for signal in receives.lock().unwrap().drain(..) {
            parts.extend([Part::Until(signal), Part::Bytes(sse(&[text_delta(0, "x")]).into_bytes())]);
        }
        parts.push(Part::Hang);
        parts
    })
    .await;
    let clock = ManualClock::new();
    let messages = messages(&config(&server).with_http(|http| http.with_retries(0)), &clock);
    let mut events = messages.stream(ask("Hi"));
    // The head has come, and the idle time of the body begins.
    while !matches!(events.next().await.unwrap().unwrap(), ModelEvent::UsageReported(_)) {}
    let mut pieces = 0;
    let failed = loop {
        // While the client waits, half of the idle time passes, then a piece comes: the idle time begins again each time.
        let drip = async {
            clock.sleeper_for(if pieces == 0 { IDLE } else { IDLE / 2 }).await;
            clock.advance(IDLE / 2);
            sends.remove(0).send(()).ok();
            std::future::pending::<()>().await;
        };
        let event = tokio::select! {
            biased;
            event = async {
                loop {
                    match events.next().await.unwrap() {
                        Ok(ModelEvent::TextDelta { .. }) => break Ok(()),
                        Ok(_) => {}
                        Err(error) => break Err(error),
                    }
                }
            } => event,
            () = drip => unreachable!(),
        };
        match event {
            Ok(()) => pieces += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(pieces, 9);
    assert_eq!(failed.kind, ModelErrorKind::Timeout);
    assert!(failed.message.contains("took longer than 600s"), "{failed}");
    assert_eq!(clock.elapsed(), TOTAL);
}

#[tokio::test]
async fn an_endless_response_is_stopped_at_the_limit() {
    let endless = |head: Vec<u8>, bytes: &'static [u8]| async move {
        let server =
            Server::start(move |_, _| vec![Part::Bytes(head.clone()), Part::Forever(bytes.to_vec())]).await;
        let limits = ResponseLimits { event: 10_000, total: 100_000 };
        let messages = messages(
            &config(&server).with_http(|http| http.with_limits(limits).with_retries(0)),
            &ManualClock::new(),
        );
        let failed = call(&messages).await.unwrap_err();
        server.disconnected(1).await;
        failed
    };
    let begun = || stream(&sse(&[start(), block(0, json!({"type": "text", "text": ""}))]));
    let line = endless(begun(), b"xxxxxxxx").await;
    assert!(line.kind == ModelErrorKind::Protocol && line.message.contains("larger than 10000"), "{line}");
    let pings = endless(begun(), b"event: ping\ndata: {\"type\":\"ping\"}\n\n").await;
    assert!(
        pings.kind == ModelErrorKind::Protocol && pings.message.contains("larger than 100000"),
        "{pings}"
    );
    let json = endless(answer("200 OK", &[("content-type", "application/json")], "["), b"1,").await;
    assert_eq!(json.message, "the answer is larger than 100000 bytes");
    let page = endless(answer("500 Oops", &[], ""), b"<p>oops</p>").await;
    assert_eq!(page.kind, ModelErrorKind::Api(ApiErrorKind::Api));
}

#[tokio::test]
async fn data_after_the_end_does_not_delay_the_response() {
    let server = Server::start(|_, _| {
        vec![Part::Bytes(stream(&text_stream("Hello"))), Part::Forever(b": more\n".to_vec())]
    })
    .await;
    assert_eq!(text(&call(&client(&server).0).await.unwrap()), "Hello");
    server.disconnected(1).await;
}

/// Cancelled at every point at which it can wait: the service sees the connection close, and the next call works.
#[tokio::test]
async fn a_call_may_be_dropped_at_every_wait() {
    let complete = stream(&text_stream("Hello"));
    for cut in (0..complete.len()).step_by(61) {
        let sent = complete.clone();
        let server = Server::start(move |n, _| match n {
            0 => vec![Part::Bytes(sent[..cut].to_vec()), Part::Hang],
            _ => vec![Part::Bytes(sent.clone())],
        })
        .await;
        let (messages, clock) = client(&server);
        let mut first = messages.stream(ask("Hi"));
        let waits = async {
            server.received(1).await;
            clock.sleeper_for(IDLE).await;
        };
        tokio::select! {
            biased;
            () = async { while first.next().await.is_some_and(|item| item.is_ok()) {} } => {}
            () = waits => {}
        }
        drop(first);
        server.disconnected(1).await;
        assert_eq!(text(&drain(messages.stream(ask("again"))).await.1.unwrap()), "Hello");
    }
}
