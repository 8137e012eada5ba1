//! Metrics from the recorded events of a session: its turns and its model calls.
//!
//! State: the start times of the running turn and model call, in memory. After a crash they are unknown; then the end
//! is counted without a duration.

use std::sync::{Arc, Mutex};

use conjure_base::{TenantId, Timestamp, lock};
use conjure_conversation::{ApiErrorKind, Event, EventKind, ModelErrorKind, TurnStop, Usage};
use metrics::{counter, histogram};

use super::bounded_labels::Label;
use super::names;
use super::runtime_metrics::RuntimeMetrics;

/// Records the metrics of one session.
#[derive(Debug)]
pub(crate) struct SessionMetrics {
    tenant: Label,
    started: Mutex<StartTimes>,
}

#[derive(Debug, Default)]
struct StartTimes {
    turn: Option<Timestamp>,
    model_call: Option<Timestamp>,
}

impl SessionMetrics {
    pub(crate) fn new(metrics: &RuntimeMetrics, tenant: &TenantId) -> Self {
        Self { tenant: metrics.tenant(tenant), started: Mutex::default() }
    }

    /// Updates the metrics for a recorded event.
    pub(crate) fn on_recorded(&self, event: &Event) {
        let mut started = lock(&self.started);
        match &event.kind {
            EventKind::TurnStarted { .. } => started.turn = Some(event.at),
            EventKind::ModelCallStarted { .. } => started.model_call = Some(event.at),
            EventKind::ModelAnswered { response, .. } => {
                self.model_call("ok");
                self.record_duration(names::MODEL_CALL_DURATION, started.model_call.take(), event.at);
                self.count_usage(&response.usage);
            }
            EventKind::ModelCallFailed { error, .. } => {
                started.model_call = None;
                self.model_call(error_label(&error.kind));
            }
            EventKind::ModelCallAbandoned { .. } => {
                started.model_call = None;
                self.model_call("abandoned");
            }
            EventKind::Compacted { usage, .. } => self.compacted("ok", usage),
            EventKind::CompactionFailed { usage, .. } => self.compacted("unchanged", usage),
            EventKind::CompactionAbandoned { .. } => self.compacted("abandoned", &Usage::default()),
            EventKind::TurnFinished { stop, .. } => {
                counter!(names::TURNS, "tenant" => Arc::clone(&self.tenant), "stop" => stop_label(stop))
                    .increment(1);
                self.record_duration(names::TURN_DURATION, started.turn.take(), event.at);
            }
            _ => {}
        }
    }

    fn compacted(&self, outcome: &'static str, usage: &Usage) {
        counter!(names::COMPACTIONS, "tenant" => Arc::clone(&self.tenant), "outcome" => outcome).increment(1);
        self.count_usage(usage);
    }

    fn model_call(&self, outcome: &'static str) {
        counter!(names::MODEL_CALLS, "tenant" => Arc::clone(&self.tenant), "outcome" => outcome).increment(1);
    }

    fn record_duration(&self, what: &'static str, began: Option<Timestamp>, ended: Timestamp) {
        if let Some(began) = began {
            histogram!(what, "tenant" => Arc::clone(&self.tenant)).record(ended.duration_since(began));
        }
    }

    fn count_usage(&self, usage: &Usage) {
        let kinds = [
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cache_creation", usage.cache_creation_input_tokens),
            ("cache_read", usage.cache_read_input_tokens),
        ];
        for (kind, tokens) in kinds {
            if tokens > 0 {
                counter!(names::TOKENS, "tenant" => Arc::clone(&self.tenant), "kind" => kind)
                    .increment(tokens);
            }
        }
        if usage.cost_micros > 0 {
            counter!(names::COST, "tenant" => Arc::clone(&self.tenant)).increment(usage.cost_micros);
        }
    }
}

const fn stop_label(stop: &TurnStop) -> &'static str {
    match stop {
        TurnStop::Answered(_) => "answered",
        TurnStop::Truncated(_) => "cut",
        TurnStop::Refused => "refused",
        TurnStop::Limit(_) => "limit",
        TurnStop::ModelFailed(_) => "model_failed",
        TurnStop::Interrupted => "interrupted",
        TurnStop::Deadline => "deadline",
        _ => "other",
    }
}

/// The class of a failure. All unknown error types of a service share one class, so they cannot create new series.
const fn error_label(kind: &ModelErrorKind) -> &'static str {
    match kind {
        ModelErrorKind::Connection => "connection",
        ModelErrorKind::Truncated => "truncated",
        ModelErrorKind::Protocol => "protocol",
        ModelErrorKind::Timeout => "timeout",
        ModelErrorKind::Overloaded => "overloaded",
        ModelErrorKind::ContainerGone => "container_gone",
        ModelErrorKind::Script => "script",
        ModelErrorKind::Api(kind) => match kind {
            ApiErrorKind::InvalidRequest => "invalid_request_error",
            ApiErrorKind::Authentication => "authentication_error",
            ApiErrorKind::Billing => "billing_error",
            ApiErrorKind::Permission => "permission_error",
            ApiErrorKind::NotFound => "not_found_error",
            ApiErrorKind::RateLimit => "rate_limit_error",
            ApiErrorKind::Timeout => "timeout_error",
            ApiErrorKind::Api => "api_error",
            ApiErrorKind::Overloaded => "overloaded_error",
            ApiErrorKind::Unknown(_) => "unknown",
        },
        _ => "other",
    }
}
