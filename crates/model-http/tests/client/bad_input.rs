//! What is no answer: each ends in time, with an error that says what is wrong.

use conjure_conversation::{ApiErrorKind, ModelErrorKind};
use conjure_model_http::{HttpConfig, ResponseLimits};

use crate::server::{Part, Server, answer};
use crate::text_wire::{config, result};

/// How a call to this server ends.
async fn failure(server: Server, change: impl Fn(HttpConfig) -> HttpConfig) -> (ModelErrorKind, String) {
    let failed = result(&change(config(&server.url()))).await.unwrap_err();
    (failed.kind, failed.message)
}

const HTML: [(&str, &str); 1] = [("content-type", "text/html")];

#[tokio::test]
async fn a_page_of_html_names_the_api_that_was_expected() {
    let page = "<html><h1>Welcome to the hotel</h1></html>";
    let (kind, message) = failure(Server::always(answer("200 OK", &HTML, page)).await, |config| config).await;
    assert_eq!(kind, ModelErrorKind::Protocol);
    assert_eq!(
        message,
        "the service did not answer with a stream of events; is the base URL that of the API of texts? \
         It begins: Welcome to the hotel"
    );
}

#[tokio::test]
async fn json_in_place_of_a_stream_is_an_answer_or_an_error() {
    const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
    let body = |body: &str| Server::always(answer("200 OK", &JSON, body));
    let reported = body(r#"{"error":{"type":"billing_error","message":"pay first"}}"#);
    let (kind, message) = failure(reported.await, |config| config).await;
    assert_eq!(kind, ModelErrorKind::Api(ApiErrorKind::Billing));
    assert_eq!(message, "the service answered 200 with an error (billing_error): pay first");
    let (kind, message) = failure(body(r#"{"x":1}"#).await, |config| config).await;
    assert_eq!(kind, ModelErrorKind::Protocol);
    assert_eq!(
        message,
        "the service did not answer with a message (it has no text); is the base URL that of the API of texts? \
         It begins: {\"x\":1}"
    );
    let limits = |config: HttpConfig| config.with_limits(ResponseLimits { event: 10_000, total: 100_000 });
    let endless =
        Server::start(|_, _| vec![Part::Bytes(answer("200 OK", &JSON, "[")), Part::Forever(b"1,".to_vec())]);
    assert_eq!(failure(endless.await, limits).await.1, "the answer is larger than 100000 bytes");
}

#[tokio::test]
async fn a_wrong_base_url_is_suggested_as_the_cause() {
    for (status, expected) in [
        ("404 Not Found", "(not_found_error): nothing here; is the base URL that of the API of texts?"),
        ("405 No", "(invalid_request_error): nothing here; is the base URL that of the API of texts?"),
        (
            "301 Moved",
            "(status_301): nothing here; the address redirects: set the base URL of the API of texts itself",
        ),
    ] {
        let server = Server::always(answer(status, &HTML, "<p>nothing here</p>")).await;
        let (_, message) = failure(server, |config| config).await;
        assert!(message.ends_with(expected), "{message}");
    }
}
