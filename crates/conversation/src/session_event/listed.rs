//! Merges a list of events, so that each event appears once.

use std::collections::HashMap;

use super::event_id::EventId;
use super::types::{SessionEvent, SessionEventKind};

/// Keeps each event once: a queued message whose turn has started appears where it was queued, with its `processed_at`.
///
/// The events are those of an [`EventProjection`](super::EventProjection), in order. If they begin after a message was queued, the
/// message appears where its turn started.
#[must_use]
pub fn merge_events(events: Vec<SessionEvent>) -> Vec<SessionEvent> {
    let mut waiting: HashMap<EventId, usize> = HashMap::new();
    let mut merged: Vec<SessionEvent> = Vec::with_capacity(events.len());
    for event in events {
        if let SessionEventKind::UserMessage { queue_id: Some(_), .. } = event.kind {
            if event.processed_at.is_none() {
                waiting.insert(event.id.clone(), merged.len());
            } else if let Some(place) = waiting.remove(&event.id) {
                merged[place].processed_at = event.processed_at;
                continue;
            }
        }
        merged.push(event);
    }
    merged
}
