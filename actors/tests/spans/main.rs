//! Telemetry of a session: the spans of its turns stand in one that says whose they are.

#![expect(clippy::unwrap_used, reason = "a test fails by panic")]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[path = "../sessions/support.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
#[cfg(test)]
mod support;

#[path = "../sessions/scenario.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
#[cfg(test)]
mod scenario;

/// Each span by name with its parent's, and every field of the outermost.
#[derive(Default)]
struct RecordedSpans {
    spans: Vec<(&'static str, Option<&'static str>)>,
    fields: String,
    current: Vec<u64>,
}

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<RecordedSpans>>);

impl Visit for RecordedSpans {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = writeln!(self.fields, "{}={value:?}", field.name());
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The actors' own are `ractor`'s.
        metadata.is_span() && metadata.target().starts_with("conjure_")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut recorded = self.0.lock().unwrap();
        let parent = recorded.current.last().map(|id| recorded.spans[usize::try_from(*id).unwrap() - 1].0);
        recorded.spans.push((span.metadata().name(), parent));
        if parent.is_none() {
            span.record(&mut *recorded);
        }
        Id::from_u64(recorded.spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        self.0.lock().unwrap().current.push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().current.pop();
    }
}

#[tokio::test]
async fn the_spans_of_a_turn_name_tenant_and_session() {
    let collector = Collector::default();
    let guard = tracing::subscriber::set_default(collector.clone());
    let host = scenario::Host::new().await;
    let session = host.open().await;
    assert_eq!(session.send("call note").await.unwrap().end().await, Ok(scenario::answered()));
    let id = session.id();
    host.shutdown().await;
    drop(guard);
    let recorded = collector.0.lock().unwrap();
    let agent = Some("invoke_agent");
    let expected = [
        ("session", None),
        ("invoke_agent", Some("session")),
        ("chat", agent),
        ("execute_tool", agent),
        ("chat", agent),
    ];
    assert_eq!(recorded.spans, expected);
    let fields = format!(
        "gen_ai.conversation.id={id}\nconjure.tenant=acme\nconjure.session={id}\nconjure.incarnation=1\n"
    );
    assert_eq!(recorded.fields, fields);
}
