//! Converts the library's events to events of the API.
//!
//! The API's union of events is closed: a strict client refuses unknown events. So an event without an equivalent is left out. A stop
//! reason without an equivalent becomes a similar one, preceded by a `session.error` if something went wrong. The guide contains the table.

use conjure_api::{
    Confirmation, EvaluatedPermission, Evaluation, Event, EventKind, ModelUsage, SessionError,
    SessionErrorKind, StopReason,
};
use conjure_conversation::{
    ApiErrorKind, EvaluatedPermission as Permission, Limit, ModelError, ModelErrorKind, SessionEvent,
    SessionEventKind as Kind, SessionStopReason as Stop, ToolServerFailure, Usage,
};
use serde_json::value::RawValue;

use super::blocks::{api_blocks, api_result, api_texts};
use super::input::{api_answers, api_questions};

/// The API's events for an event of the library: none, one, or an error and one event.
pub(crate) fn api_events(event: &SessionEvent) -> Vec<Event> {
    let id = event.id.to_string();
    let processed_at = event.processed_at.map(Into::into);
    let (error, kind) = api_kind(&event.kind);
    let error = error.map(|error| Event {
        id: format!("{id}_error"),
        processed_at,
        kind: EventKind::SessionError { error },
    });
    error.into_iter().chain(kind.map(|kind| Event { id, processed_at, kind })).collect()
}

fn api_kind(kind: &Kind) -> (Option<SessionError>, Option<EventKind>) {
    let kind = match kind {
        Kind::UserMessage { content, .. } => EventKind::UserMessage { content: api_blocks(content) },
        Kind::UserInterrupt {} => EventKind::UserInterrupt {},
        Kind::UserToolConfirmation { tool_use_id, result, deny_message, .. } => {
            EventKind::UserToolConfirmation {
                tool_use_id: tool_use_id.to_string(),
                result: if *result == "deny" { Confirmation::Deny } else { Confirmation::Allow },
                deny_message: deny_message.clone(),
            }
        }
        Kind::UserCustomToolResult { custom_tool_use_id, result, is_error, .. } => {
            EventKind::UserCustomToolResult {
                custom_tool_use_id: custom_tool_use_id.to_string(),
                content: Some(api_result(result)),
                is_error: Some(*is_error),
            }
        }
        Kind::UserToolResult { tool_use_id, result, is_error, .. } => EventKind::UserToolResult {
            tool_use_id: tool_use_id.to_string(),
            content: Some(api_result(result)),
            is_error: Some(*is_error),
        },
        Kind::AgentMessage { content } => {
            let content = api_texts(content);
            if content.is_empty() {
                return (None, None);
            }
            EventKind::AgentMessage { content }
        }
        Kind::AgentThinking { .. } => EventKind::AgentThinking {},
        Kind::AgentToolUse { name, input, evaluated_permission, .. }
            if let Some((server, tool)) = of_server(name) =>
        {
            EventKind::AgentMcpToolUse {
                name: tool.to_owned(),
                mcp_server_name: server.to_owned(),
                input: api_input(input),
                evaluated_permission: evaluated_permission.map(api_permission),
                evaluation: evaluated_permission.and_then(api_evaluation),
            }
        }
        Kind::AgentToolUse { name, input, evaluated_permission, .. } => EventKind::AgentToolUse {
            name: name.clone(),
            input: api_input(input),
            evaluated_permission: evaluated_permission.map(api_permission),
            evaluation: evaluated_permission.and_then(api_evaluation),
        },
        Kind::AgentCustomToolUse { name, input, .. } => {
            EventKind::AgentCustomToolUse { name: name.clone(), input: api_input(input) }
        }
        Kind::AgentInputRequest { asked_by, questions, .. } => {
            return (None, api_questions(asked_by, questions));
        }
        Kind::UserInputResponse { input_request_id, answers, .. } => api_answers(input_request_id, answers),
        Kind::AgentToolResult { tool_use_id, name: Some(name), result, is_error, .. }
            if of_server(name).is_some() =>
        {
            EventKind::AgentMcpToolResult {
                mcp_tool_use_id: tool_use_id.to_string(),
                content: Some(api_result(result)),
                is_error: Some(*is_error),
            }
        }
        Kind::AgentToolResult { tool_use_id, result, is_error, .. } => EventKind::AgentToolResult {
            tool_use_id: tool_use_id.to_string(),
            content: Some(api_result(result)),
            is_error: Some(*is_error),
        },
        Kind::SessionUpdated { change } => EventKind::SessionUpdated {
            agent: None,
            budget: None,
            metadata: change.metadata.clone(),
            title: change.title.clone(),
        },
        Kind::SessionStatusRunning {} => EventKind::SessionStatusRunning {},
        Kind::SessionStatusIdle { stop_reason, .. } => {
            let (error, stop_reason) = api_stop(stop_reason);
            return (error, Some(EventKind::SessionStatusIdle { stop_reason, stop_details: None }));
        }
        Kind::ToolServerFailed { failure } => EventKind::SessionError { error: api_server_failure(failure) },
        Kind::SessionError { error } => EventKind::SessionError { error: api_model_error(error) },
        Kind::SessionCompacted { .. } => EventKind::AgentThreadContextCompacted {},
        Kind::ModelRequestStart { .. } => EventKind::SpanModelRequestStart {},
        Kind::ModelRequestEnd { model_request_start_id, is_error, model_usage, .. } => {
            EventKind::SpanModelRequestEnd {
                model_request_start_id: model_request_start_id.to_string(),
                model_usage: model_usage.as_ref().map(api_usage).unwrap_or_default(),
                is_error: Some(*is_error),
            }
        }
        // The API has no events for grants, artifacts, skills, model changes, forks, containers, produced files and compaction spans.
        _ => return (None, None),
    };
    (None, Some(kind))
}

/// The API's stop reason. If the API has no such reason, also the error that precedes it.
fn api_stop(stop: &Stop) -> (Option<SessionError>, StopReason) {
    let error = |kind, message: &str| Some(SessionError::new(kind, message));
    match stop {
        // The event `user.interrupt` precedes the end of an interrupted turn.
        Stop::EndTurn | Stop::Interrupted => (None, StopReason::EndTurn),
        Stop::RequiresAction { event_ids, .. } => (
            None,
            StopReason::RequiresAction { event_ids: event_ids.iter().map(ToString::to_string).collect() },
        ),
        // The error has an event of its own.
        Stop::RetriesExhausted => (None, StopReason::RetriesExhausted),
        Stop::Refusal => (None, StopReason::Refusal),
        Stop::OutcomeUnknown => (
            error(
                SessionErrorKind::Unknown,
                "the server ended during a model call whose outcome is not known; the call was not repeated",
            ),
            StopReason::RetriesExhausted,
        ),
        Stop::BudgetReached { limit } => api_limit(*limit),
        Stop::Cut { reason } => {
            let message = format!("the model's answer was cut ({reason}); its tool calls did not run");
            (error(SessionErrorKind::ModelRequestFailed, &message), StopReason::EndTurn)
        }
        Stop::Deadline => (
            error(SessionErrorKind::Unknown, "the deadline of the turn passed; send a message to continue"),
            StopReason::EndTurn,
        ),
        other => {
            tracing::debug!(stop = ?other, "the API has no such stop reason");
            (None, StopReason::EndTurn)
        }
    }
}

/// Spending limits are the API's budget. Any other limit of a turn becomes an error, and the session continues with the next message.
fn api_limit(limit: Limit) -> (Option<SessionError>, StopReason) {
    let kind = match limit {
        Limit::Tokens | Limit::Cost | Limit::TenantTokens | Limit::TenantCost => {
            return (None, StopReason::BudgetReached);
        }
        Limit::ToolCalls | Limit::IdenticalCalls | Limit::DeniedCalls => {
            SessionErrorKind::ToolUseLimitReached
        }
        _ => SessionErrorKind::Unknown,
    };
    let message = format!("{limit} of the turn was reached; send a message to continue");
    (Some(SessionError::new(kind, message)), StopReason::EndTurn)
}

/// The server and the tool in a name such as `mcp__SERVER__TOOL`. Names of servers never contain `__`.
fn of_server(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("mcp__")?.split_once("__")
}

fn api_server_failure(failure: &ToolServerFailure) -> SessionError {
    let kind = match failure.needs_authorization {
        true => SessionErrorKind::McpAuthenticationFailed,
        false => SessionErrorKind::McpConnectionFailed,
    };
    SessionError {
        mcp_server_name: Some(failure.server.clone()),
        ..SessionError::new(kind, failure.reason.as_str())
    }
}

fn api_model_error(error: &ModelError) -> SessionError {
    let kind = match &error.kind {
        ModelErrorKind::Overloaded | ModelErrorKind::Api(ApiErrorKind::Overloaded) => {
            SessionErrorKind::ModelOverloaded
        }
        ModelErrorKind::Api(ApiErrorKind::RateLimit) => SessionErrorKind::ModelRateLimited,
        ModelErrorKind::Api(ApiErrorKind::Billing) => SessionErrorKind::Billing,
        _ => SessionErrorKind::ModelRequestFailed,
    };
    SessionError::new(kind, error.to_string())
}

const fn api_permission(permission: Permission) -> EvaluatedPermission {
    match permission {
        Permission::Allow => EvaluatedPermission::Allow,
        Permission::Ask => EvaluatedPermission::Ask,
        Permission::Deny => EvaluatedPermission::Deny,
    }
}

const fn api_evaluation(permission: Permission) -> Option<Evaluation> {
    match permission {
        Permission::Allow => Some(Evaluation::AlwaysAllow),
        Permission::Ask => Some(Evaluation::AlwaysAsk),
        Permission::Deny => None,
    }
}

fn api_usage(usage: &Usage) -> ModelUsage {
    ModelUsage {
        cache_creation_input_tokens: usage.cache_creation_input_tokens,
        cache_read_input_tokens: usage.cache_read_input_tokens,
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
    }
}

/// The input as an object. The API cannot represent any other value that a model may have written.
fn api_input(input: &RawValue) -> Box<RawValue> {
    if input.get().trim_start().starts_with('{') {
        return input.to_owned();
    }
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| input.to_owned())
}
