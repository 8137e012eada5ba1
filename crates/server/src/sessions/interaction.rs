//! Sends a client's events to a session, one after the other.

use conjure_actors::session::{Session, TurnHandle, Update};
use conjure_api::{ClientEvent, Confirmation, ContentBlock, Event, EventKind, Time, ToolOutcome};
use conjure_base::{Clock as _, SystemClock};
use conjure_conversation::{Decision, EventId, SessionEvent, SessionEventKind};
use conjure_runtime::{EventOrder, EventQuery, Runtime};

use crate::events::{api_events, input_answers, message_blocks, result_contents};
use crate::http::ApiError;

/// What the model reads if the client denies a call without a reason.
const DENIED: &str = "The user denied this call.";

/// How many events each query reads in the search for an event that was just recorded.
const LAST_EVENTS: usize = 64;

/// Sends these events in order, and returns them as recorded.
///
/// # Errors
/// The error of the first event that is refused. The events before it are recorded, so the outcome of the request is unknown then.
pub(crate) async fn send(
    runtime: &Runtime,
    session: &Session,
    events: Vec<ClientEvent>,
) -> Result<Vec<Event>, ApiError> {
    for (place, event) in events.iter().enumerate() {
        check(&format!("events.{place}"), event)?;
    }
    let mut sent = Vec::with_capacity(events.len());
    for (place, event) in events.into_iter().enumerate() {
        let recorded = send_one(runtime, session, &format!("events.{place}"), event).await;
        sent.push(recorded.map_err(|error| if place == 0 { error } else { error.with_unknown_outcome() })?);
    }
    Ok(sent)
}

/// Checks everything that can be refused before an event is recorded.
fn check(place: &str, event: &ClientEvent) -> Result<(), ApiError> {
    match event {
        ClientEvent::Message { content } => message_blocks(place, content.clone()).map(drop),
        ClientEvent::Interrupt => Ok(()),
        ClientEvent::ToolConfirmation { tool_use_id, .. } => event_id(place, tool_use_id).map(drop),
        ClientEvent::CustomToolResult { custom_tool_use_id: id, result }
        | ClientEvent::ToolResult { tool_use_id: id, result } => {
            event_id(place, id)?;
            result_contents(place, result.content.clone().unwrap_or_default()).map(drop)
        }
        ClientEvent::SystemMessage { .. } => Err(ApiError::invalid(format!(
            "{place}: this server does not support `system.message`; put the instructions into the agent or a message"
        ))),
    }
}

fn event_id(place: &str, text: &str) -> Result<EventId, ApiError> {
    text.parse().map_err(|error| ApiError::invalid(format!("{place}: {error}")))
}

async fn send_one(
    runtime: &Runtime,
    session: &Session,
    place: &str,
    event: ClientEvent,
) -> Result<Event, ApiError> {
    match event {
        ClientEvent::Message { content } => {
            let turn = send_message(session, place, content).await?;
            let seq = turn.accepted().seq();
            // The event is usually still in the session's memory. Otherwise this reads the journal.
            let mut recorded = turn.into_subscription();
            loop {
                if recorded.next_seq() > seq + 1 {
                    return found(None);
                }
                match recorded.next().await.map_err(unknown)? {
                    Update::Recorded(event) if is_message(&event) => return found(Some(event)),
                    _ => {}
                }
            }
        }
        ClientEvent::Interrupt => {
            let before = session.snapshot().await?.events;
            session.interrupt().await?;
            let interrupt = last_since(runtime, session, before, |event| {
                matches!(event.kind, SessionEventKind::UserInterrupt {})
            });
            match interrupt.await? {
                Some(event) => found(Some(event)),
                // No turn was running, so nothing was recorded.
                None => Ok(Event {
                    id: format!("sevt_{}_i{before}", digits(session)),
                    processed_at: Some(Time(SystemClock.timestamp())),
                    kind: EventKind::UserInterrupt {},
                }),
            }
        }
        ClientEvent::ToolConfirmation { tool_use_id, result, deny_message } => {
            let call = event_id(place, &tool_use_id)?;
            let decision = match result {
                Confirmation::Allow => Decision::Allow,
                Confirmation::Deny => {
                    Decision::Deny { reason: deny_message.unwrap_or_else(|| DENIED.to_owned()) }
                }
            };
            session.decide_event(&call, decision).await?;
            found(last(runtime, session, |event| confirms(event, &call)).await?)
        }
        ClientEvent::CustomToolResult { custom_tool_use_id: id, result }
        | ClientEvent::ToolResult { tool_use_id: id, result } => {
            let call = event_id(place, &id)?;
            let ToolOutcome { content, is_error } = result;
            let content = result_contents(place, content.unwrap_or_default())?;
            let is_error = is_error.unwrap_or(false);
            if call.input_in(session.id()).is_some() {
                let answers = input_answers(place, &content, is_error)?;
                session.provide_input_event(&call, answers).await?;
            } else {
                session.provide_result_event(&call, content, is_error).await?;
            }
            found(last(runtime, session, |event| provides(event, &call)).await?)
        }
        ClientEvent::SystemMessage { .. } => check(place, &event).and_then(|()| found(None)),
    }
}

/// Sends a message. Returns its turn.
///
/// # Errors
/// 400 for content that cannot be sent to any model. Otherwise the error of the session.
pub(crate) async fn send_message(
    session: &Session,
    place: &str,
    content: Vec<ContentBlock>,
) -> Result<TurnHandle, ApiError> {
    Ok(session.send(message_blocks(place, content)?).await?)
}

fn is_message(event: &SessionEvent) -> bool {
    matches!(event.kind, SessionEventKind::UserMessage { .. })
}

fn confirms(event: &SessionEvent, call: &EventId) -> bool {
    matches!(&event.kind, SessionEventKind::UserToolConfirmation { tool_use_id, .. } if tool_use_id == call)
}

fn provides(event: &SessionEvent, call: &EventId) -> bool {
    match &event.kind {
        SessionEventKind::UserCustomToolResult { custom_tool_use_id: id, .. }
        | SessionEventKind::UserInputResponse { input_request_id: id, .. }
        | SessionEventKind::UserToolResult { tool_use_id: id, .. } => id == call,
        _ => false,
    }
}

/// The last event that matches, searched backwards from the end of the log.
async fn last(
    runtime: &Runtime,
    session: &Session,
    is_it: impl Fn(&SessionEvent) -> bool + Send,
) -> Result<Option<SessionEvent>, ApiError> {
    last_since(runtime, session, 0, is_it).await
}

/// Like [`last`]. Events before the event number `since` are not searched.
async fn last_since(
    runtime: &Runtime,
    session: &Session,
    since: u64,
    is_it: impl Fn(&SessionEvent) -> bool + Send,
) -> Result<Option<SessionEvent>, ApiError> {
    let mut from = None;
    loop {
        let query = EventQuery { order: EventOrder::Descending, from, limit: LAST_EVENTS };
        let page = runtime.event_page(session.tenant(), session.id(), query).await.map_err(unknown)?;
        let is_last_page = page.next.is_none() || page.events.iter().any(|event| event.seq < since);
        if let Some(event) = page.events.into_iter().find(|event| event.seq >= since && is_it(event)) {
            return Ok(Some(event));
        }
        if is_last_page {
            return Ok(None);
        }
        from = page.next;
    }
}

fn found(event: Option<SessionEvent>) -> Result<Event, ApiError> {
    let event = event.and_then(|event| api_events(&event).pop());
    event.ok_or_else(|| {
        unknown(ApiError::internal("the event was recorded, and cannot be shown; list the events"))
    })
}

/// An error after the event was recorded.
fn unknown(error: impl Into<ApiError>) -> ApiError {
    error.into().with_unknown_outcome()
}

fn digits(session: &Session) -> String {
    let id = session.id().to_string();
    id.rsplit('_').next().unwrap_or_default().to_owned()
}
