//! The responses of the small service that these tests call.

pub(crate) use test_support::http::{Part, Server, answer};

/// A stream of these events' data.
pub(crate) fn stream(events: &[&str]) -> Vec<u8> {
    let body: String = events.iter().map(|data| format!("data: {data}\n\n")).collect();
    answer(
        "200 OK",
        &[("content-type", "text/event-stream; charset=utf-8"), ("x-request-id", "req_1")],
        &body,
    )
}

/// A JSON error.
pub(crate) fn error(status: &str, headers: &[(&str, &str)], kind: &str, message: &str) -> Vec<u8> {
    let body = format!(r#"{{"error":{{"type":"{kind}","message":"{message}"}}}}"#);
    let headers = [&[("content-type", "application/json")], headers].concat();
    answer(status, &headers, &body)
}
