//! The log lines of a fetch: host, size and duration, and no other part of the URL.

use std::sync::{Mutex, Once};

use test_support::OnEvent;

use crate::support::{Fixture, TestServer, ok};

/// The events of fetches of the whole process, as text.
static LOG: Mutex<String> = Mutex::new(String::new());

/// Begins to keep the events. Every test does it first: a call site that is first used without a subscriber stays disabled.
pub(crate) fn keep_events() {
    static COLLECTOR: Once = Once::new();
    COLLECTOR.call_once(|| {
        let collector = OnEvent::new(
            |target| target.starts_with("conjure"),
            |fields| {
                let line: String = fields.iter().map(|(name, value)| format!("{name}={value} ")).collect();
                LOG.lock().unwrap().push_str(&(line + "\n"));
            },
        );
        tracing::subscriber::set_global_default(collector).unwrap();
    });
}

#[tokio::test]
async fn fetch_logs_contain_no_secrets_of_urls() {
    let site = TestServer::answering(|head| match head.path() {
        path if path.starts_with("/canary-good") => ok("X-Canary: canary\r\n", "canary body"),
        _ => b"HTTP/1.1 404 canary\r\nContent-Length: 6\r\n\r\ncanary".to_vec(),
    })
    .await;
    let fixture = Fixture::new();
    fixture.fetch(&site.url("told.example", "/canary-good?canary=canary#canary")).await.unwrap();
    fixture.fetch(&site.url("told.example", "/canary-good?canary=canary")).await.unwrap();
    fixture.fetch(&site.url("told.example", "/canary-bad")).await.unwrap_err();
    fixture.fetch("http://told-private.example/canary?canary").await.unwrap_err();
    fixture.fetch("http://canary:canary@told.example/canary").await.unwrap_err();
    let log = LOG.lock().unwrap().clone();
    // Other tests use other hosts in the log.
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("host=told")).collect();
    let has = |line: usize, parts: &[&str]| {
        assert!(parts.iter().all(|part| lines[line].contains(part)), "{log}");
    };
    has(0, &["message=fetched ", "host=told.example ", "status=200 ", "bytes=11 ", "duration_ms="]);
    has(1, &["message=fetched before ", "host=told.example "]);
    has(2, &["message=not fetched ", "host=told.example ", "kind=FetchFailed ", "duration_ms="]);
    has(3, &["host=told-private.example ", "reason="]);
    has(4, &["message=not fetched ", "host=told-private.example ", "kind=PrivateAddress "]);
    assert_eq!(lines.len(), 5, "{log}");
    assert!(!log.contains("canary"), "nor is there one without a host: {log}");
}
