//! The responses of the small service that these tests call.

pub(crate) use test_support::http::{Part, Recorded, Server, answer};

/// A stream of events under a good status.
pub(crate) fn stream(body: &str) -> Vec<u8> {
    answer("200 OK", &[("content-type", "text/event-stream; charset=utf-8"), ("request-id", "req_1")], body)
}

/// An error as the service writes it.
pub(crate) fn error(status: &str, headers: &[(&str, &str)], kind: &str, message: &str) -> Vec<u8> {
    let body = serde_json::json!({"type": "error", "error": {"type": kind, "message": message}});
    let mut all = vec![("content-type", "application/json"), ("request-id", "req_e")];
    all.extend_from_slice(headers);
    answer(status, &all, &body.to_string())
}
