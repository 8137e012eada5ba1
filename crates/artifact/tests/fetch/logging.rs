//! The log lines of a fetch: host, size and duration, and no other part of the URL.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{Fixture, TestServer, ok};

/// Keeps the events of fetches as text.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<String>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("conjure")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut log = self.0.lock().unwrap();
        event.record(&mut Fields(&mut log));
        log.push('\n');
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The log of the whole process. Every test installs it first: a call site that is first used without a subscriber stays
/// disabled.
pub(crate) fn log() -> &'static Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Log::default();
        tracing::subscriber::set_global_default(log.clone()).unwrap();
        log
    })
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
    let log = log().0.lock().unwrap().clone();
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
