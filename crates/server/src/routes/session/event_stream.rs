//! The stream of a session's events, as server-sent events.
//!
//! Each stream has one subscription, which reads the session's buffer or the journal at the client's pace. So a slow client costs bounded
//! memory and delays no other client. The connection drops a client that reads nothing at all.
//!
//! A stream contains the events after the client connected. Its last record says why it ends: `session.deleted`, or an error that tells the
//! client to reconnect and list the events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::IntoResponse;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use conjure_actors::session::{SessionError, Subscription, Update};
use conjure_api::{ErrorBody, ErrorKind, Event, EventKind, EventStreamQuery, Time};
use conjure_base::{Clock as _, Deadline, SystemClock};
use futures_util::stream::{self, Stream};
use serde::Serialize;

use crate::events::{PreviewMapping, api_events};
use crate::http::{ApiError, Path, RawQuery};
use crate::metrics::OpenStream;
use crate::routes::call::Call;
use crate::routes::route::Route;

/// The interval of pings on a silent stream.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The interval at which a stream checks whether its key is still valid.
const KEY_CHECK: Duration = Duration::from_secs(2);

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/v1/sessions/{id}/events/stream", stream_events)]
}

async fn stream_events(
    call: Call,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<impl IntoResponse, ApiError> {
    let wanted = EventStreamQuery::from_query(&query)?;
    let stored = call.sessions().get(&id).await?;
    let session = call.state.runtime.session(call.tenant(), stored.id).await?;
    let recorded = session.snapshot().await?.events;
    let events = EventStream {
        session: id,
        subscription: session.subscribe(recorded).await?,
        previews: PreviewMapping::new(wanted),
        call,
        next_check: SystemClock.deadline(KEY_CHECK),
        // The response headers are sent with the first record.
        ready: VecDeque::from([ping()]),
        is_over: false,
        _open: OpenStream::count(),
    };
    let heartbeat = KeepAlive::new().interval(HEARTBEAT).event(ping());
    Ok(Sse::new(events.into_sse_events()).keep_alive(heartbeat))
}

/// The event stream of one client.
struct EventStream {
    session: String,
    subscription: Subscription,
    previews: PreviewMapping,
    call: Call,
    next_check: Deadline,
    ready: VecDeque<SseEvent>,
    is_over: bool,
    _open: OpenStream,
}

impl EventStream {
    fn into_sse_events(self) -> impl Stream<Item = Result<SseEvent, Infallible>> + Send {
        stream::unfold(self, |mut events| async move {
            loop {
                if let Some(record) = events.ready.pop_front() {
                    return Some((Ok(record), events));
                }
                if events.is_over {
                    return None;
                }
                events.read_next().await;
            }
        })
    }

    async fn read_next(&mut self) {
        let update = tokio::select! {
            biased;
            () = self.call.state.closing.cancelled() => Err(SessionError::ShuttingDown),
            () = SystemClock.sleep_until(self.next_check) => {
                self.next_check = SystemClock.deadline(KEY_CHECK);
                if !self.call.state.admission.is_still_admitted(&self.call.caller).await {
                    let body = ErrorBody::new(ErrorKind::Authentication, "the key was revoked or has expired".to_owned(), None, None);
                    self.ready.push_back(record("error", &body));
                    self.is_over = true;
                }
                return;
            }
            update = self.subscription.next() => update,
        };
        match update {
            Ok(Update::Recorded(event)) => {
                self.previews.note(&event);
                self.ready
                    .extend(api_events(&event).iter().map(|event| record(event.kind.type_name(), event)));
            }
            Ok(Update::Preview(preview)) => {
                let previews = self.previews.previews(&preview);
                self.ready.extend(previews.iter().map(|preview| record("preview", preview)));
            }
            Ok(Update::Lagged) => self.previews.forget_call(),
            Ok(_) => {}
            Err(error) => {
                self.ready.push_back(self.last_event(&error));
                self.is_over = true;
            }
        }
    }

    /// The record that says why the stream ends.
    fn last_event(&self, error: &SessionError) -> SseEvent {
        if let SessionError::NotFound { .. } = error {
            let event = Event {
                id: format!("sevt_{}_deleted", self.session.rsplit('_').next().unwrap_or_default()),
                processed_at: Some(Time(SystemClock.timestamp())),
                kind: EventKind::SessionDeleted {},
            };
            return record(event.kind.type_name(), &event);
        }
        let message = format!("{error}; open the stream again, then list the events to see those between");
        record("error", &ErrorBody::new(ErrorKind::Overloaded, message, None, None))
    }
}

fn ping() -> SseEvent {
    SseEvent::default().event("ping").data(r#"{"type":"ping"}"#)
}

fn record(name: &str, body: &impl Serialize) -> SseEvent {
    // These values always serialise.
    let mut json = serde_json::to_string(body).unwrap_or_default();
    // A line break would end the record. Only JSON from a model contains line breaks, and only between its tokens.
    if json.bytes().any(|byte| matches!(byte, b'\n' | b'\r')) {
        json = json.replace(['\n', '\r'], " ");
    }
    SseEvent::default().event(name).data(json)
}
