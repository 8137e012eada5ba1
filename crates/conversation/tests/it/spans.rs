//! Telemetry: the spans of a turn, their names and their parents, and that no content is in them.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{FakeModel, World, calls, start, text};

/// The spans in order, each with its parent, and every field that was ever recorded.
#[derive(Default)]
struct Seen {
    spans: Vec<(&'static str, Option<&'static str>)>,
    fields: String,
    current: Vec<u64>,
}

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Seen>>);

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = writeln!(self.fields, "{}={value:?}", field.name());
    }
}

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut seen = self.0.lock().unwrap();
        let parent = seen.current.last().map(|id| seen.spans[*id as usize - 1].0);
        seen.spans.push((span.metadata().name(), parent));
        span.record(&mut *seen);
        Id::from_u64(seen.spans.len() as u64)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut *self.0.lock().unwrap());
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut *self.0.lock().unwrap());
    }
    fn enter(&self, span: &Id) {
        self.0.lock().unwrap().current.push(span.into_u64());
    }
    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().current.pop();
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_one_trace_without_content() {
    let turn = async || {
        let answers = vec![calls(&[("bash", "canary-id")]), text("canary answer")];
        let world = World::new(FakeModel::in_turn(answers));
        let mut conversation = world.load().await;
        world.turn(&mut conversation, start("canary question")).await;
    };
    // A call site that another test's thread uses for the first time meanwhile would be taken for one that nobody listens to.
    turn().await;
    let collector = Collector::default();
    let guard = tracing::subscriber::set_default(collector.clone());
    turn().await;
    drop(guard);
    let seen = collector.0.lock().unwrap();
    let agent = Some("invoke_agent");
    let expected = [("invoke_agent", None), ("chat", agent), ("execute_tool", agent), ("chat", agent)];
    assert_eq!(seen.spans, expected);
    for field in [
        "gen_ai.operation.name=\"chat\"",
        "gen_ai.tool.name=\"bash\"",
        "gen_ai.tool.call.id=\"canary-id\"",
        "gen_ai.usage.input_tokens=10",
        "gen_ai.usage.output_tokens=5",
        "gen_ai.response.finish_reasons=tool_use",
    ] {
        assert!(seen.fields.contains(field), "{field} is not in {}", seen.fields);
    }
    for content in ["canary question", "canary answer", "bash done"] {
        assert!(!seen.fields.contains(content), "{content} leaked into {}", seen.fields);
    }
}
