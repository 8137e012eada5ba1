//! What is sent: address, query, key and headers.

use std::sync::Arc;

use conjure_conversation::{ModelError, ModelErrorKind, ModelEvent};
use conjure_model_http::{
    HeaderValue, HttpClient, HttpConfig, KeyHeader, ModelPrices, PlaintextPolicy, Prices,
};
use futures_util::StreamExt as _;

use crate::server::{Server, answer, stream};
use crate::text_wire::{KEY, TextWire, call, config, drain, result, text};

#[tokio::test]
async fn a_call_is_streamed_and_carries_key_headers_and_query() {
    let server = Server::always(stream(&["Hel", "lo", "[DONE]", "late"])).await;
    let config = config(&format!("{}/v1/", server.url()))
        .with_key_header(KeyHeader::Named("api-key"))
        .with_wire_header("x-version", "7")
        .with_header("X-Team", "blue".to_owned().into())
        .with_query("api-version", "2024-10-21 preview");
    let client = HttpClient::new(&config).unwrap();
    let mut call = call(&client);
    call.headers.insert("x-call", HeaderValue::from_static("1"));
    let (previews, response) = drain(&client, call).await;
    let response = response.unwrap();
    assert_eq!(text(&response), "Hello");
    assert_eq!(response.request_id.as_deref(), Some("req_1"));
    assert_eq!(previews.len(), 4, "{previews:?}");
    assert_eq!(previews[0], ModelEvent::Sent);
    let sent = server.requests()[0].text();
    assert!(sent.starts_with("POST /v1/texts?api-version=2024-10-21+preview HTTP/1.1\r\n"), "{sent}");
    for line in [
        &format!("api-key: {KEY}"),
        "x-version: 7",
        "x-team: blue",
        "x-call: 1",
        "content-type: application/json",
    ] {
        assert!(sent.contains(&format!("\r\n{line}\r\n")), "{line}: {sent}");
    }
    assert!(sent.ends_with("\r\n\r\n{\"ask\":\"Hi\"}"), "{sent}");
    assert!(!format!("{client:?} {config:?}").contains("canary"));
}

#[tokio::test]
async fn an_unstreamed_response_is_read_completely() {
    let headers = [("content-type", "Application/JSON; charset=utf-8"), ("x-request-id", "req_1")];
    let server = Server::always(answer("200 OK", &headers, r#"{"text":"Hello"}"#)).await;
    let client = HttpClient::new(&config(&server.url())).unwrap();
    let (previews, response) = drain(&client, call(&client)).await;
    let response = response.unwrap();
    assert_eq!((text(&response).as_str(), response.request_id.as_deref()), ("Hello", Some("req_1")));
    assert_eq!(
        previews,
        [
            ModelEvent::Sent,
            ModelEvent::Started,
            ModelEvent::TextDelta { index: 0, text: "Hello".to_owned() },
            ModelEvent::UsageReported(response.usage),
        ]
    );
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_server_without_a_key_gets_none() {
    let server = Server::always(stream(&["Hello", "[DONE]"])).await;
    assert_eq!(text(&result(&HttpConfig::new(server.url())).await.unwrap()), "Hello");
    let sent = server.requests()[0].text().to_lowercase();
    assert!(!sent.contains("authorization") && !sent.contains("-key"), "{sent}");
}

#[tokio::test]
async fn a_call_that_cannot_be_serialized_is_not_sent() {
    let server = Server::always(stream(&["[DONE]"])).await;
    let client = HttpClient::new(&config(&server.url())).unwrap();
    let make = || Err(ModelError::new(ModelErrorKind::Protocol, "this API has no images"));
    let mut events = client.stream(Arc::new(TextWire), make);
    let error = events.next().await.unwrap().unwrap_err();
    assert_eq!(error.message, "this API has no images");
    assert!(events.next().await.is_none());
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn nothing_is_sent_before_the_first_poll() {
    let server = Server::always(stream(&["[DONE]"])).await;
    let client = HttpClient::new(&config(&server.url())).unwrap();
    drop(client.stream(Arc::new(TextWire), || panic!("not polled")));
    let whole = call(&client);
    let mut events = client.stream(Arc::new(TextWire), move || Ok(whole));
    assert!(matches!(events.next().await, Some(Ok(ModelEvent::Sent))));
    assert_eq!(server.requests().len(), 0, "the caller can record the call before it is sent");
}

#[tokio::test]
async fn an_unstreamed_response_has_its_request_id_and_cost() {
    let headers = [("content-type", "application/json"), ("request-id", "req_2")];
    let server = Server::always(answer("200 OK", &headers, r#"{"text":"Hello"}"#)).await;
    let client = HttpClient::new(&config(&server.url())).unwrap();
    let response = drain(&client, call(&client)).await.1.unwrap();
    assert_eq!((text(&response), response.request_id.as_deref()), ("Hello".to_owned(), Some("req_2")));
    assert_eq!(client.models_without_price(), ["m"]);
    let price = ModelPrices { input: 1, output: 1, cache_write: 1, cache_read: 1 };
    let priced = config(&server.url()).with_prices(Prices::none().with_fallback(price));
    let priced = HttpClient::new(&priced).unwrap();
    drain(&priced, call(&priced)).await.1.unwrap();
    assert!(priced.models_without_price().is_empty());
}

#[tokio::test]
async fn the_service_is_named_with_an_unusual_port() {
    for (url, expected) in [
        ("http://api.example.com/v1", "api.example.com"),
        ("http://api.example.com:80/v1", "api.example.com"),
        ("http://api.example.com:8443", "api.example.com:8443"),
        ("http://127.0.0.1:11434/v1", "127.0.0.1:11434"),
        ("http://[::1]:8080", "[::1]:8080"),
    ] {
        let config = HttpConfig::new(url).with_plaintext(PlaintextPolicy::Anywhere);
        assert_eq!(HttpClient::new(&config).unwrap().service(), expected, "{url}");
    }
}
