//! Routes of a session's events: send and list. The stream is in its own file.

use axum::Json;
use conjure_api::{Cursor, Event, EventListQuery, EventSend, Order, Page, RequestBody as _, SentEvents};
use conjure_runtime::{EventCursor, EventOrder, EventQuery};

use crate::access::Scope;
use crate::events::api_events;
use crate::http::{ApiError, Body, Path, RawQuery};
use crate::routes::call::{Call, JsonResult};
use crate::routes::route::Route;
use crate::routes::session::sessions::refuse_archived;
use crate::sessions;

/// How many events are read at once. A page with a type filter may read several times as many as it returns.
const CHUNK: usize = 256;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::post(Scope::Run, "/v1/sessions/{id}/events", send).idempotent(),
        Route::get("/v1/sessions/{id}/events", list),
    ]
}

async fn send(call: Call, Path(id): Path<String>, Body(body): Body) -> JsonResult<SentEvents> {
    let events = EventSend::from_json(&body)?.events;
    let stored = call.sessions().get(&id).await?;
    refuse_archived(&stored)?;
    let session = call.state.runtime.session(call.tenant(), stored.id).await?;
    Ok(Json(SentEvents { data: sessions::send(&call.state.runtime, &session, events).await? }))
}

async fn list(call: Call, Path(id): Path<String>, RawQuery(query): RawQuery) -> JsonResult<Page<Event>> {
    let query = EventListQuery::from_query(&query)?;
    let stored = call.sessions().get(&id).await?;
    let list = list_name(&id, &query);
    let place = query.page.page.as_deref().map(|page| Cursor::position(page, &list)).transpose()?;
    let mut from = place.as_deref().map(read_place).transpose()?;
    let order = match query.order {
        Order::Ascending => EventOrder::Ascending,
        Order::Descending => EventOrder::Descending,
    };
    let mut data = Vec::new();
    loop {
        let wanted = EventQuery { order, from, limit: (query.page.limit - data.len()).min(CHUNK) };
        let page = call.state.runtime.event_page(call.tenant(), stored.id, wanted).await?;
        for event in &page.events {
            let mut events = api_events(event);
            if query.order == Order::Descending {
                events.reverse();
            }
            data.extend(events.into_iter().filter(|event| is_wanted(event, &query)));
        }
        from = page.next;
        let Some(EventCursor { seq, index }) = from else { return Ok(Json(Page { data, next_page: None })) };
        if data.len() >= query.page.limit {
            let next_page = Cursor { list, position: format!("{seq}.{index}") }.encode();
            return Ok(Json(Page { data, next_page: Some(next_page) }));
        }
    }
}

fn is_wanted(event: &Event, query: &EventListQuery) -> bool {
    let is_of_type = query.types.is_empty() || query.types.contains(&event.kind.type_name());
    // A queued event has no time yet.
    is_of_type && event.processed_at.is_none_or(|at| query.created_at.contains(at))
}

/// The list that a cursor belongs to: its session, its order and its filters.
fn list_name(id: &str, query: &EventListQuery) -> String {
    format!("events {id} {} {:?} {:?}", query.order.as_str(), query.types, query.created_at)
}

fn read_place(text: &str) -> Result<EventCursor, ApiError> {
    let numbers =
        text.split_once('.').and_then(|(seq, index)| Some((seq.parse().ok()?, index.parse().ok()?)));
    let (seq, index) = numbers
        .ok_or_else(|| ApiError::invalid("page: the value is not a cursor; give `next_page` as it is"))?;
    Ok(EventCursor { seq, index })
}
