//! Errors that a service reports, and which of them are tried again.

use std::time::Duration;

use conjure_conversation::{ApiErrorKind, ModelErrorKind, ModelEvent, SideEffects};
use conjure_model_http::{HttpClient, HttpConfig};

use crate::server::{Server, answer, error, stream};
use crate::text_wire::{call, config, drain, result, text};

async fn after(replies: Vec<Vec<u8>>, retries: u32) -> (Server, HttpConfig) {
    let server = Server::answers(replies).await;
    let config = config(&server.url()).with_retries(retries);
    (server, config)
}

#[tokio::test]
async fn a_service_error_has_kind_message_and_request_id() {
    let reply = error("400 Bad Request", &[("request-id", "req_9")], "invalid_request_error", "too long");
    let server = Server::always(reply).await;
    let failed = result(&config(&server.url())).await.unwrap_err();
    assert_eq!(failed.kind, ModelErrorKind::Api(ApiErrorKind::InvalidRequest));
    assert_eq!(failed.message, "the service answered 400 (invalid_request_error): too long");
    assert_eq!(failed.request_id.as_deref(), Some("req_9"));
}

#[tokio::test]
async fn an_error_with_status_200_is_read_too() {
    let reply = error("200 OK", &[("x-request-id", "req_9")], "overloaded_error", "busy");
    let server = Server::always(reply).await;
    let failed = result(&config(&server.url())).await.unwrap_err();
    assert_eq!(failed.kind, ModelErrorKind::Api(ApiErrorKind::Overloaded));
    assert_eq!(failed.message, "the service answered 200 with an error (overloaded_error): busy");
    assert_eq!(failed.request_id.as_deref(), Some("req_9"));
}

#[tokio::test]
async fn the_wire_decides_about_retries() {
    let good = || stream(&["Hello", "[DONE]"]);
    // A used up quota has the status of a rate limit.
    let (server, config) = after(vec![error("429 No", &[], "quota_error", "pay"), good()], 2).await;
    let failed = result(&config).await.unwrap_err();
    assert_eq!(
        (server.requests().len(), failed.kind),
        (1, ModelErrorKind::Api(ApiErrorKind::Unknown("quota_error".to_owned())))
    );
    // The body names the wait.
    for status in ["429 No", "503 No"] {
        let (server, config) = after(vec![error(status, &[], "slow_error", "wait"), good()], 2).await;
        assert_eq!(text(&result(&config).await.unwrap()), "Hello");
        assert_eq!(server.requests().len(), 2, "{status}");
    }
    let (server, config) =
        after(vec![error("200 OK", &[], "overloaded_error", "busy"), stream(&["error busy"]), good()], 2)
            .await;
    assert_eq!(text(&result(&config).await.unwrap()), "Hello");
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_call_with_output_is_not_retried() {
    let (server, config) = after(vec![stream(&["Hel", "error busy"]), stream(&["Hello", "[DONE]"])], 2).await;
    let client = HttpClient::new(&config).unwrap();
    let (previews, ended) = drain(&client, call(&client)).await;
    assert!(previews.contains(&ModelEvent::TextDelta { index: 0, text: "Hel".to_owned() }));
    assert_eq!(ended.unwrap_err().kind, ModelErrorKind::Api(ApiErrorKind::Overloaded));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_call_with_side_effects_is_not_retried_once_it_may_have_arrived() {
    for (reply, kind) in [
        (error("500 Oops", &[], "api_error", "oops"), ModelErrorKind::OutcomeUnknown),
        (stream(&[]), ModelErrorKind::OutcomeUnknown),
        (error("404 No", &[], "not_found_error", "no container c_1"), ModelErrorKind::ContainerGone),
    ] {
        let (server, config) = after(vec![reply, stream(&["Hello", "[DONE]"])], 2).await;
        let client = HttpClient::new(&config).unwrap();
        let mut call = call(&client);
        call.effects = SideEffects::Possible;
        call.container = Some("c_1".to_owned());
        let failed = drain(&client, call).await.1.unwrap_err();
        assert_eq!((server.requests().len(), &failed.kind), (1, &kind), "{failed}");
    }
}

#[tokio::test]
async fn one_limit_makes_all_calls_of_the_key_wait() {
    let limited = error("429 No", &[("retry-after", "9")], "rate_limit_error", "slow down");
    let (server, config) = after(vec![limited, stream(&["Hello", "[DONE]"])], 0).await;
    let client = HttpClient::new(&config).unwrap();
    let first = drain(&client, call(&client)).await.1.unwrap_err();
    assert_eq!(first.retry_after, Some(Duration::from_secs(9)));
    let second = drain(&client, call(&client));
    assert!(tokio::time::timeout(Duration::from_millis(50), second).await.is_err());
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn secrets_that_the_service_echoes_are_redacted() {
    let echo = "bad key sk-canary-0123456789 of canary-team";
    let with_header = |url: &str| config(url).with_header("X-Auth-Token", "canary-team".to_owned().into());
    for reply in [
        error("401 No", &[], "authentication_error", echo),
        error("200 OK", &[], "authentication_error", echo),
        answer("401 No", &[("x-request-id", "canary-team")], echo),
        answer("200 OK", &[], echo),
        stream(&[&format!("error {echo}")]),
    ] {
        let server = Server::always(reply).await;
        let failed = result(&with_header(&server.url())).await.unwrap_err();
        assert!(failed.message.contains("[REDACTED:TEXT_API_KEY] of [REDACTED:X-AUTH-TOKEN]"), "{failed}");
    }
}
