//! Telemetry: the spans of a turn, their names and their parents, and that no content is in them.

use std::cell::RefCell;
use std::fmt::Write as _;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{FakeModel, Fixture, calls, start, text};

/// The spans in order, each with its parent, and every field that was ever recorded.
#[derive(Default)]
struct Seen {
    spans: Vec<(&'static str, Option<&'static str>)>,
    fields: String,
    current: Vec<u64>,
}

thread_local! {
    /// What this thread does is collected here.
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

/// The subscriber of the whole process. One for a thread alone would miss call sites that another test's thread reaches first: it
/// decides for all whether somebody listens to them.
struct Collector;

impl Collector {
    fn see<T>(with: impl FnOnce(&mut Seen) -> T) -> Option<T> {
        SEEN.with_borrow_mut(|seen| seen.as_mut().map(with))
    }
}

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
        let id = Self::see(|seen| {
            let parent = seen.current.last().map(|id| seen.spans[*id as usize - 1].0);
            seen.spans.push((span.metadata().name(), parent));
            span.record(seen);
            seen.spans.len() as u64
        });
        Id::from_u64(id.unwrap_or(u64::MAX))
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        Self::see(|seen| values.record(seen));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        Self::see(|seen| event.record(seen));
    }
    fn enter(&self, span: &Id) {
        Self::see(|seen| seen.current.push(span.into_u64()));
    }
    fn exit(&self, _: &Id) {
        Self::see(|seen| seen.current.pop());
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_one_trace_without_content() {
    tracing::subscriber::set_global_default(Collector).unwrap();
    SEEN.set(Some(Seen::default()));
    let answers = vec![calls(&[("bash", "canary-id")]), text("canary answer")];
    let fixture = Fixture::new(FakeModel::in_turn(answers));
    let mut conversation = fixture.load().await;
    fixture.turn(&mut conversation, start("canary question")).await;
    let seen = SEEN.take().unwrap();
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
