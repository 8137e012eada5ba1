//! Reads the session events of a recorded session: all of them, or a page.
//!
//! The cost of a page depends on its size, not on its position in the event log. Three rules ensure this:
//!
//! - The projection starts at the last start event before the page, which is always near ([`EventProjection::is_start`]).
//! - A list shows a queued message at the position where it was queued. So it needs no event before the page for the
//!   message.
//! - The time when a queued message was processed is found by reading forward from it, only as far as the message had to
//!   wait.

use std::collections::BTreeMap;

use conjure_actors::session::redact_event;
use conjure_base::{Redactor, Timestamp};
use conjure_conversation::{
    Event, EventKind, EventProjection, QueueId, SessionEvent, SessionEventKind, merge_events,
};
use conjure_journal::{PageLimit, RecordedEvent, SessionKey};

use crate::runtime::error::RuntimeError;
use crate::runtime::session::readers::session_reader::{SessionReader, is_of_kind, read};

/// The most recorded events in a read. The search for a start event begins with [`FIRST_CHUNK`] and doubles it.
const CHUNK: u64 = 128;
const FIRST_CHUNK: u64 = 16;

/// A position between two events of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventCursor {
    /// The sequence number of a recorded event.
    pub seq: u64,
    /// How many of the session events of `seq` are before the position.
    pub index: usize,
}

/// The order of a list of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventOrder {
    /// The oldest first.
    #[default]
    Ascending,
    /// The newest first.
    Descending,
}

/// Which events of a session are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventQuery {
    /// The order.
    pub order: EventOrder,
    /// The position where the page begins. `None` stands for the first event in this order. In descending order, the page
    /// contains the events before the position.
    pub from: Option<EventCursor>,
    /// The most events of the page.
    pub limit: usize,
}

/// A page of a session's events.
#[derive(Debug, Clone)]
pub struct SessionEventPage {
    /// The events. A queued message stands at the position where it was queued. Its `processed_at` is set if its turn has
    /// begun.
    pub events: Vec<SessionEvent>,
    /// The position where the next page begins; `None` at the end.
    pub next: Option<EventCursor>,
}

/// The session events of each recorded event of a range, with the sequence number of the recorded event.
type ProjectedRange = Vec<(u64, Vec<SessionEvent>)>;

impl SessionReader {
    /// All events of a session from the sequence number on, each once.
    pub(crate) async fn events(
        &self,
        key: &SessionKey,
        from_seq: u64,
        redactor: &Redactor,
    ) -> Result<Vec<SessionEvent>, RuntimeError> {
        let total = self.info(key).await?.events;
        let ranges = self.project(key, from_seq, total, redactor).await?;
        Ok(merge_events(ranges.into_iter().flat_map(|(_, events)| events).collect()))
    }

    /// A page of a session's events.
    pub(crate) async fn event_page(
        &self,
        key: &SessionKey,
        query: EventQuery,
        redactor: &Redactor,
    ) -> Result<SessionEventPage, RuntimeError> {
        let total = self.info(key).await?.events;
        let limit = query.limit.max(1);
        // One recorded event becomes about one session event. One more shows whether there is another page.
        let chunk = u64::try_from(limit.saturating_add(limit / 4).saturating_add(1))
            .unwrap_or(CHUNK)
            .clamp(FIRST_CHUNK, CHUNK);
        let mut found: Vec<(EventCursor, SessionEvent)> = Vec::new();
        match query.order {
            EventOrder::Ascending => {
                let start = query.from.unwrap_or(EventCursor { seq: 0, index: 0 });
                let mut seq = start.seq;
                while found.len() <= limit && seq < total {
                    let until = seq.saturating_add(chunk).min(total);
                    let events = with_cursors(self.project(key, seq, until, redactor).await?);
                    found.extend(events.filter(|(cursor, _)| *cursor >= start));
                    seq = until;
                }
            }
            EventOrder::Descending => {
                let end = query.from.unwrap_or(EventCursor { seq: total, index: 0 });
                let mut until = end.seq.saturating_add(1).min(total);
                while found.len() <= limit && until > 0 {
                    let seq = until.saturating_sub(chunk);
                    let mut events: Vec<_> = with_cursors(self.project(key, seq, until, redactor).await?)
                        .filter(|(cursor, _)| *cursor < end)
                        .collect();
                    events.reverse();
                    found.append(&mut events);
                    until = seq;
                }
            }
        }
        let next = (found.len() > limit).then(|| match query.order {
            EventOrder::Ascending => found[limit].0,
            EventOrder::Descending => found[limit - 1].0,
        });
        found.truncate(limit);
        let mut events: Vec<SessionEvent> = found.into_iter().map(|(_, event)| event).collect();
        self.set_processed_at(key, &mut events, total).await?;
        Ok(SessionEventPage { events, next })
    }

    /// Projects the recorded events `from..until` to session events.
    async fn project(
        &self,
        key: &SessionKey,
        from: u64,
        until: u64,
        redactor: &Redactor,
    ) -> Result<ProjectedRange, RuntimeError> {
        let mut recorded = self.range(key, from, until).await?;
        let (mut start, mut step) = (from, FIRST_CHUNK);
        let is_start = |event: &Event| EventProjection::is_start(&event.kind);
        let mut has_start = match recorded.first() {
            Some(first) => is_start(first),
            None => return Ok(Vec::new()),
        };
        while !has_start && start > 0 {
            let before = start.saturating_sub(step);
            step = (step * 2).min(CHUNK);
            let mut events = self.range(key, before, start).await?;
            has_start = events.iter().any(is_start);
            events.append(&mut recorded);
            (recorded, start) = (events, before);
        }
        let mut projection = EventProjection::new(key.session);
        let mut projected = Vec::new();
        for (seq, event) in (start..).zip(&recorded) {
            let events = redact_event(redactor, event).map(|event| projection.apply(seq, &event));
            if seq >= from {
                projected.push((seq, events.unwrap_or_default()));
            }
        }
        Ok(projected)
    }

    /// The recorded events `from..until`.
    async fn range(&self, key: &SessionKey, from: u64, until: u64) -> Result<Vec<Event>, RuntimeError> {
        let mut events = Vec::new();
        let mut next = from;
        while next < until {
            let page = self.recorded_page(key, next, until).await?;
            if page.is_empty() {
                break;
            }
            next += page.len() as u64;
            for recorded in &page {
                events.push(read(key, recorded)?);
            }
        }
        Ok(events)
    }

    async fn recorded_page(
        &self,
        key: &SessionKey,
        from: u64,
        until: u64,
    ) -> Result<Vec<RecordedEvent>, RuntimeError> {
        let limit = PageLimit::default();
        let events = u32::try_from(until - from).unwrap_or(u32::MAX).min(limit.events);
        Ok(self.page(key, from, PageLimit { events, ..limit }).await?.events)
    }

    /// Sets `processed_at` of queued messages whose turns have begun.
    async fn set_processed_at(
        &self,
        key: &SessionKey,
        events: &mut [SessionEvent],
        total: u64,
    ) -> Result<(), RuntimeError> {
        let mut waiting: BTreeMap<QueueId, u64> = events.iter().filter_map(waiting_message).collect();
        let mut taken: BTreeMap<QueueId, Timestamp> = BTreeMap::new();
        let Some(mut next) = waiting.values().min().copied() else { return Ok(()) };
        while next < total && !waiting.is_empty() {
            let page = self.recorded_page(key, next, total.min(next.saturating_add(CHUNK))).await?;
            if page.is_empty() {
                break;
            }
            next += page.len() as u64;
            let ends_wait = |recorded: &&RecordedEvent| {
                is_of_kind(recorded, "turn_started") || is_of_kind(recorded, "unqueued")
            };
            for recorded in page.iter().filter(ends_wait) {
                let event = read(key, recorded)?;
                match event.kind {
                    EventKind::TurnStarted { queued: Some(id), .. } if waiting.remove(&id).is_some() => {
                        taken.insert(id, event.at);
                    }
                    EventKind::Unqueued { id } => {
                        waiting.remove(&id);
                    }
                    _ => {}
                }
            }
        }
        for event in events {
            if let Some((id, _)) = waiting_message(event) {
                event.processed_at = taken.get(&id).copied();
            }
        }
        Ok(())
    }
}

/// The events of a list with their positions. Leaves out the second event of a queued message, because the message is
/// listed where it was queued.
fn with_cursors(ranges: ProjectedRange) -> impl Iterator<Item = (EventCursor, SessionEvent)> {
    ranges.into_iter().flat_map(|(seq, events)| {
        events
            .into_iter()
            .enumerate()
            .map(move |(index, event)| (EventCursor { seq, index }, event))
            .filter(|(_, event)| !is_taken_message(event))
    })
}

const fn is_taken_message(event: &SessionEvent) -> bool {
    event.processed_at.is_some()
        && matches!(event.kind, SessionEventKind::UserMessage { queue_id: Some(_), .. })
}

/// The queue id and the sequence number of a message that has no `processed_at`.
const fn waiting_message(event: &SessionEvent) -> Option<(QueueId, u64)> {
    match event.kind {
        SessionEventKind::UserMessage { queue_id: Some(id), .. } if event.processed_at.is_none() => {
            Some((id, event.seq))
        }
        _ => None,
    }
}
