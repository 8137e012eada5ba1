//! [`OnEvent`]: a subscriber of `tracing` that passes the fields of each event to a function.

use std::fmt::Debug;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The names and values of one event's fields, in the event's order. A value is formatted by `Debug`: a string has quotes, a message
/// has none.
pub type EventFields = Vec<(&'static str, String)>;

/// A subscriber of `tracing` that calls a function with each event of some targets. It ignores spans.
#[derive(Debug)]
pub struct OnEvent<F> {
    is_wanted: fn(&str) -> bool,
    on_event: F,
}

impl<F: Fn(EventFields) + Send + Sync + 'static> OnEvent<F> {
    /// Calls `on_event`, in the thread of the event, with the events whose target `is_wanted`.
    pub const fn new(is_wanted: fn(&str) -> bool, on_event: F) -> Self {
        Self { is_wanted, on_event }
    }
}

impl<F: Fn(EventFields) + Send + Sync + 'static> Subscriber for OnEvent<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        (self.is_wanted)(metadata.target())
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut collector = Collector(Vec::new());
        event.record(&mut collector);
        (self.on_event)(collector.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Collector(EventFields);

impl Visit for Collector {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}
