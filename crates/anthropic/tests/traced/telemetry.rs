//! Traces of all levels and of all crates contain neither the key nor message text.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use conjure_conversation::Model;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::clock::ManualClock;
use crate::events::{sse, start, text_stream};
use crate::server::{Server, answer, error, stream};
use crate::support::{KEY, ask, call, config, drain, messages};

/// Everything that was ever recorded, with where it came from.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<String>>);

struct FieldWriter<'a>(&'a mut String);

impl Visit for FieldWriter<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Collector {
    fn line(&self, metadata: Option<&Metadata<'_>>, record: impl FnOnce(&mut FieldWriter<'_>)) {
        let mut text = self.0.lock().unwrap();
        if let Some(metadata) = metadata {
            let _ = write!(text, "{} {} {}", metadata.level(), metadata.target(), metadata.name());
        }
        record(&mut FieldWriter(&mut text));
        text.push('\n');
    }
}

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.line(Some(span.metadata()), |line| span.record(line));
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        self.line(None, |line| values.record(line));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        self.line(Some(event.metadata()), |line| event.record(line));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn traces_contain_no_key_and_no_content() {
    let collector = Collector::default();
    let guard = tracing::subscriber::set_default(collector.clone());
    let echo = format!("you sent {KEY}");
    let event = json!({"type": "error", "error": {"type": "overloaded_error", "message": echo}});
    for message in [
        stream(&text_stream("canary words")),
        error("401 No", &[], "authentication_error", &echo),
        error("500 Oops", &[("request-id", KEY)], "api_error", &echo),
        answer("200 OK", &[("content-type", "text/html")], &echo),
        stream(&sse(&[start(), event])),
        Vec::new(),
    ] {
        let server = Server::always(message).await;
        let clock = ManualClock::new();
        let messages = messages(&config(&server), &clock);
        tokio::select! {
            biased;
            _ = drain(messages.stream(ask("canary question"))) => {}
            () = async { loop { clock.skip_retry_wait().await; } } => unreachable!(),
        }
    }
    // A way that fails in the connector, with the proxy's password in its address.
    let server = Server::always(Vec::new()).await;
    let through = config(&server)
        .with_http(|http| http.with_proxy("http://user:canary-password@localhost:1").with_retries(0));
    call(&messages(&through, &ManualClock::new())).await.unwrap_err();
    drop(guard);
    let recorded = collector.0.lock().unwrap();
    // It did listen: to us at two levels.
    assert!(recorded.contains("INFO conjure_model_http::calls::call_span chat"), "{recorded}");
    assert!(
        recorded.contains("is retried") && recorded.contains("[REDACTED:ANTHROPIC_API_KEY]"),
        "{recorded}"
    );
    for hidden in [KEY, "canary"] {
        let found: Vec<&str> = recorded.lines().filter(|line| line.contains(hidden)).collect();
        assert!(found.is_empty(), "{hidden}: {found:#?}");
    }
}
