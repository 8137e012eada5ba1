//! A subscription to a session's events, from any sequence number on, at the reader's own pace.
//!
//! The reader pulls. A subscription holds the next sequence number that it wants. It reads the session's ring; if it
//! has fallen behind the ring, it reads pages of the journal until it has caught up. So it needs bounded memory and
//! misses no recorded event. It may miss previews, and reports that. Everything is redacted here, where it leaves the
//! session.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use conjure_conversation::{
    Event, EventKind, EventProjection, ModelEvent, SessionEvent, ToolProgress, TurnStop,
};
use conjure_journal::{PageLimit, SessionKey};

use super::error::SessionError;
use crate::journal::JournalHandle;
use crate::session::event_redaction::{StreamingRedactor, redact_event, redact_stop};
use crate::session::lifecycle::session_entry::SessionEntry;
use crate::session::log::journal_event_log::JournalEventLog;
use crate::session::turn::event_hub::{EventHub, HubRead, RingEntry};

/// The size of a page that is read from the journal.
const PAGE: PageLimit = PageLimit { events: 64, bytes: 1 << 20 };

/// An update of a subscription.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "nearly all updates are events")]
pub enum Update {
    /// A recorded event. One record can become several events with the same `seq`. A reader that has all of them can
    /// resume with `Session::subscribe(seq + 1)`.
    Recorded(SessionEvent),
    /// A preview of a response that is still being generated. Only the recorded response is final. Texts are redacted
    /// and may be delayed because of that.
    Preview(ModelEvent),
    /// The progress of a running tool call. It is not recorded.
    ToolProgress(ToolProgress),
    /// The reader was too slow and missed previews.
    Lagged,
}

/// An item of a subscription. A recorded event comes with the updates that subscribers get for it.
#[derive(Debug, Clone)]
pub(crate) enum SubscriptionItem {
    Event { event: Arc<Event>, updates: VecDeque<SessionEvent> },
    Preview(ModelEvent),
    Progress(ToolProgress),
    Lagged,
}

/// A subscription to a session. Dropping it does not affect the session.
pub struct Subscription {
    /// Keeps the session's hub while the subscription exists, also while the session is passivated.
    entry: Arc<SessionEntry>,
    hub: Arc<EventHub>,
    journal: JournalHandle,
    key: Arc<SessionKey>,
    /// The position in the ring.
    position: u64,
    next: u64,
    /// The position in the ring since which everything was read; 0 if nothing was missed.
    complete_from: u64,
    /// Events from the journal, if the reader is behind.
    page: VecDeque<Event>,
    redactors: HashMap<usize, StreamingRedactor>,
    /// `None` before the first event.
    projection: Option<EventProjection>,
    ready: VecDeque<SessionEvent>,
}

impl Subscription {
    pub(crate) fn new(entry: &Arc<SessionEntry>, from_seq: u64) -> Self {
        let (hub, journal) = (Arc::clone(&entry.observer.hub), entry.services.journal.clone());
        let position = hub.position();
        let next = from_seq;
        Self {
            hub,
            journal,
            key: Arc::clone(&entry.key),
            entry: Arc::clone(entry),
            // The ring skips recorded events before `next`, and previews of ended calls. A reader from `u64::MAX` on gets
            // only new entries.
            position: if from_seq < u64::MAX { 0 } else { position },
            complete_from: 0,
            next,
            page: VecDeque::new(),
            redactors: HashMap::new(),
            projection: None,
            ready: VecDeque::new(),
        }
    }

    /// The sequence number of the next event.
    #[must_use]
    pub const fn next_seq(&self) -> u64 {
        self.next
    }

    /// Waits for the next update. Cancel safe: dropping the future loses nothing.
    ///
    /// # Errors
    /// When the journal cannot be read, when the session was given up or deleted, or when the runtime has stopped.
    pub async fn next(&mut self) -> Result<Update, SessionError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Update::Recorded(event));
            }
            match self.next_item().await? {
                SubscriptionItem::Event { updates, .. } => self.ready = updates,
                SubscriptionItem::Preview(preview) => return Ok(Update::Preview(preview)),
                SubscriptionItem::Progress(progress) => return Ok(Update::ToolProgress(progress)),
                SubscriptionItem::Lagged => return Ok(Update::Lagged),
            }
        }
    }

    /// The next recorded event or preview.
    pub(crate) async fn next_item(&mut self) -> Result<SubscriptionItem, SessionError> {
        let mut changes = self.hub.subscribe();
        loop {
            if let Some(event) = self.page.front() {
                if self.projection.is_none() {
                    self.projection = Some(self.projection_before(self.next, &event.kind).await?);
                }
                if let Some(event) = self.page.pop_front() {
                    return Ok(self.item_for(self.next, Arc::new(event)));
                }
            }
            changes.borrow_and_update();
            match self.hub.read(self.position, &mut self.complete_from, self.next) {
                HubRead::Entry(RingEntry::Recorded(seq, event), position) => {
                    if self.projection.is_none() {
                        self.projection = Some(self.projection_before(seq, &event.kind).await?);
                    }
                    self.position = position;
                    return Ok(self.item_for(seq, event));
                }
                HubRead::Entry(RingEntry::Preview(preview), position) => {
                    self.position = position;
                    if let Some(preview) = self.preview(&preview) {
                        return Ok(SubscriptionItem::Preview(preview));
                    }
                }
                HubRead::Entry(RingEntry::Progress(progress), position) => {
                    self.position = position;
                    return Ok(SubscriptionItem::Progress(ToolProgress::clone(&progress)));
                }
                HubRead::InJournal { until } => {
                    let limit = PageLimit {
                        events: u32::try_from(until - self.next).unwrap_or(u32::MAX).min(PAGE.events),
                        ..PAGE
                    };
                    let events = self.page(self.next, limit).await?;
                    if events.is_empty() {
                        let reason = format!("the event {} is missing in the journal", self.next);
                        return Err(SessionError::Journal { reason });
                    }
                    self.page = events.into();
                    // Previews were missed, so the texts that are held back cannot be continued.
                    self.redactors.clear();
                    return Ok(SubscriptionItem::Lagged);
                }
                HubRead::Closed(reason) => return Err(reason),
                HubRead::Empty => {
                    // This cannot fail: `self` holds the hub, which holds the sender.
                    let _ = changes.changed().await;
                }
            }
        }
    }

    /// Reads a page of the journal. After a shutdown the journal is closed, and after a deletion it does not have the session
    /// any more: then the error says so.
    async fn page(&self, from: u64, limit: PageLimit) -> Result<Vec<Event>, SessionError> {
        let final_reason = || {
            self.hub
                .closed_reason()
                .filter(|reason| matches!(reason, SessionError::ShuttingDown | SessionError::NotFound { .. }))
        };
        if let Some(reason) = final_reason() {
            return Err(reason);
        }
        match JournalEventLog::page(&self.journal, &self.key, from, limit).await {
            Ok((events, _)) => Ok(events),
            Err(error) => Err(final_reason().unwrap_or_else(|| error.into())),
        }
    }

    /// The projection for the event `seq`, which is of this kind, and those after it. Reads earlier events from the
    /// journal, back to an event at which a projection can start.
    async fn projection_before(&self, seq: u64, kind: &EventKind) -> Result<EventProjection, SessionError> {
        let mut projection = EventProjection::new(self.key.session);
        let mut before: Vec<Event> = Vec::new();
        let (mut from, mut has_start) = (seq, EventProjection::is_start(kind));
        while !has_start && from > 0 {
            let until = from;
            from = until.saturating_sub(u64::from(PAGE.events));
            let mut page: Vec<Event> = Vec::new();
            while from + (page.len() as u64) < until {
                let left = until - from - page.len() as u64;
                let limit = PageLimit { events: u32::try_from(left).unwrap_or(PAGE.events), ..PAGE };
                let next = from + page.len() as u64;
                let events = self.page(next, limit).await?;
                if events.is_empty() {
                    let reason = format!("the event {next} is missing in the journal");
                    return Err(SessionError::Journal { reason });
                }
                page.extend(events);
            }
            has_start = page.iter().any(|event| EventProjection::is_start(&event.kind));
            page.append(&mut before);
            before = page;
        }
        let redactor = self.entry.redactor();
        for (seq, event) in (from..).zip(&before) {
            if let Some(event) = redact_event(&redactor, event) {
                projection.apply(seq, &event);
            }
        }
        Ok(projection)
    }

    fn item_for(&mut self, seq: u64, event: Arc<Event>) -> SubscriptionItem {
        self.next = seq.saturating_add(1);
        if matches!(event.kind, EventKind::ModelCallStarted { .. }) {
            self.redactors.clear();
        }
        let redacted = redact_event(&self.entry.redactor(), &event);
        let updates = redacted.map(|event| {
            let projection = self.projection.get_or_insert_with(|| EventProjection::new(self.key.session));
            projection.apply(seq, &event)
        });
        let updates = updates.unwrap_or_default();
        SubscriptionItem::Event { event, updates: updates.into() }
    }

    fn preview(&mut self, preview: &ModelEvent) -> Option<ModelEvent> {
        let (index, text) = match preview {
            ModelEvent::TextDelta { index, text } | ModelEvent::ThinkingDelta { index, text } => {
                (*index, text)
            }
            ModelEvent::ToolInputDelta { index, partial_json } => (*index, partial_json),
            ModelEvent::Started => {
                self.redactors.clear();
                return Some(preview.clone());
            }
            ModelEvent::Finished(_) => return None,
            other => return Some(other.clone()),
        };
        let text = self.redactors.entry(index).or_default().push(&self.entry.redactor(), text)?;
        Some(match preview {
            ModelEvent::ThinkingDelta { .. } => ModelEvent::ThinkingDelta { index, text },
            ModelEvent::ToolInputDelta { .. } => ModelEvent::ToolInputDelta { index, partial_json: text },
            _ => ModelEvent::TextDelta { index, text },
        })
    }

    /// Why a turn ended, without the session's secrets.
    pub(super) fn redacted_stop(&self, stop: &TurnStop) -> TurnStop {
        redact_stop(&self.entry.redactor(), stop)
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("next", &self.next).finish_non_exhaustive()
    }
}
