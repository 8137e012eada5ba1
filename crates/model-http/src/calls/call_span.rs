//! The span of a model call, by the conventions of OpenTelemetry for generative AI. Counts are recorded as signed numbers, because
//! exporters turn unsigned ones into texts.

use conjure_conversation::{ApiErrorKind, ModelError, ModelErrorKind, Response};
use tracing::{Span, field};

use crate::calls::http_call::HttpCall;

/// Starts the span of a call.
pub(crate) fn call_span(provider: &str, host: &str, call: &HttpCall) -> Span {
    tracing::info_span!(
        "chat",
        otel.name = format!("chat {}", call.model),
        otel.kind = "client",
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = provider,
        gen_ai.request.model = call.model,
        gen_ai.request.max_tokens = call.max_tokens.map(i64::from),
        gen_ai.response.id = field::Empty,
        gen_ai.response.model = field::Empty,
        gen_ai.response.finish_reasons = field::Empty,
        gen_ai.usage.input_tokens = field::Empty,
        gen_ai.usage.output_tokens = field::Empty,
        gen_ai.usage.cache_creation.input_tokens = field::Empty,
        gen_ai.usage.cache_read.input_tokens = field::Empty,
        server.address = host,
        error.r#type = field::Empty,
        conjure.request_id = field::Empty,
        conjure.turn = %call.turn,
        conjure.call = i64::from(call.call),
    )
}

/// Records the error that ended the call.
pub(crate) fn record_error(span: &Span, error: &ModelError) {
    span.record("error.type", error_type(&error.kind));
    if let Some(id) = &error.request_id {
        span.record("conjure.request_id", id);
    }
}

/// Records a complete response.
pub(crate) fn record_response(span: &Span, response: &Response) {
    if span.is_disabled() {
        return;
    }
    let optional = [
        ("gen_ai.response.id", &response.id),
        ("gen_ai.response.model", &response.model),
        ("conjure.request_id", &response.request_id),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            span.record(name, value.as_str());
        }
    }
    span.record("gen_ai.response.finish_reasons", field::display(&response.stop_reason));
    let usage = &response.usage;
    let counts = [
        // The conventions count all input tokens, cached or not.
        ("gen_ai.usage.input_tokens", usage.total_input()),
        ("gen_ai.usage.output_tokens", usage.output_tokens),
        ("gen_ai.usage.cache_creation.input_tokens", usage.cache_creation_input_tokens),
        ("gen_ai.usage.cache_read.input_tokens", usage.cache_read_input_tokens),
    ];
    for (name, count) in counts {
        span.record(name, i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// The error type for telemetry.
fn error_type(kind: &ModelErrorKind) -> String {
    match kind {
        ModelErrorKind::Api(ApiErrorKind::Unknown(_)) => "unknown".to_owned(),
        ModelErrorKind::Api(kind) => String::from(kind.clone()),
        ModelErrorKind::ContainerGone => "container_gone".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    }
}
