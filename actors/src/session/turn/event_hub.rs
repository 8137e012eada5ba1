//! The ring buffer of a session: its last recorded events, and previews.
//!
//! The session's actor and its tasks write to it. Any number of subscriptions read it at their own pace and keep nothing
//! here. Events that have left the ring are read from the journal, so a slow reader costs nothing. State: the ring, in
//! memory. If it is lost, only previews are lost.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use conjure_base::lock;
use conjure_conversation::{ConversationObserver, Event, EventKind, ModelEvent, ToolProgress};
use tokio::sync::watch;

use crate::session::error::SessionError;

/// The capacity of a ring: the number of entries, and their approximate bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingLimits {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

/// An entry of the ring, in the order of occurrence.
#[derive(Debug, Clone)]
pub(crate) enum RingEntry {
    Recorded(u64, Arc<Event>),
    Preview(Arc<ModelEvent>),
    Progress(Arc<ToolProgress>),
}

/// Whether more entries can follow.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HubState {
    /// More can follow, perhaps only after the next message.
    Open,
    /// No more entries follow without a new message, for this reason.
    Closed(SessionError),
}

pub(crate) struct EventHub {
    ring: Mutex<Ring>,
    limits: RingLimits,
    /// Changes whenever something happens that a reader may wait for.
    changes: watch::Sender<u64>,
}

struct Ring {
    entries: VecDeque<(RingEntry, usize)>,
    bytes: usize,
    /// How many entries have left the ring.
    first: u64,
    /// How many events are recorded.
    recorded: u64,
    /// Previews at earlier positions belong to calls that have ended. Counted in recorded events.
    preview_floor: u64,
    /// The position of the entry that started the current model call, or the current gap between two calls.
    call_start: u64,
    state: HubState,
    turn_ends: TurnEndDelivery,
}

/// When the end of a turn is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnEndDelivery {
    /// As soon as it is recorded.
    Immediate,
    /// Later, when the turn's files are on the host.
    Deferred,
    /// The end with this sequence number is recorded and held back.
    Pending(u64),
}

/// The result of a read.
pub(crate) enum HubRead {
    /// The next entry, and the position after it.
    Entry(RingEntry, u64),
    /// The wanted event is not in the ring. The journal has it, and all events before `until`.
    InJournal { until: u64 },
    /// Nothing yet.
    Empty,
    /// No more entries.
    Closed(SessionError),
}

impl EventHub {
    pub(crate) fn new(limits: RingLimits) -> Self {
        let ring = Ring {
            entries: VecDeque::new(),
            bytes: 0,
            first: 0,
            recorded: 0,
            preview_floor: 0,
            call_start: 0,
            state: HubState::Open,
            turn_ends: TurnEndDelivery::Immediate,
        };
        Self { ring: Mutex::new(ring), limits, changes: watch::Sender::new(0) }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        lock(&self.ring)
    }

    pub(crate) fn notify(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// Sets the number of recorded events after a load. Events that this ring has not seen are read from the journal.
    pub(crate) fn reset_to(&self, recorded: u64) {
        let mut ring = self.ring();
        if ring.recorded != recorded {
            ring.clear();
            ring.recorded = recorded;
        }
        ring.state = HubState::Open;
        ring.turn_ends = TurnEndDelivery::Immediate;
        drop(ring);
        self.notify();
    }

    /// Holds back the ends of turns from now on, until [`EventHub::release_turn_ends`].
    pub(crate) fn defer_turn_ends(&self) {
        self.ring().turn_ends = TurnEndDelivery::Deferred;
    }

    /// Reports an end that is held back, and reports later ends at once again.
    pub(crate) fn release_turn_ends(&self) {
        self.ring().turn_ends = TurnEndDelivery::Immediate;
        self.notify();
    }

    /// Whether the end of a turn that is recorded now is held back.
    pub(crate) fn defers_turn_ends(&self) -> bool {
        self.ring().turn_ends != TurnEndDelivery::Immediate
    }

    /// Closes the ring with [`SessionError::NotStarted`] for this reason, and wakes the readers.
    pub(crate) fn close_failed(&self, reason: String) {
        self.close(SessionError::NotStarted { reason });
    }

    /// Closes the ring and wakes the readers with this reason. The first reason is kept.
    pub(crate) fn close(&self, reason: SessionError) {
        let mut ring = self.ring();
        if ring.state == HubState::Open {
            ring.state = HubState::Closed(reason);
        }
        drop(ring);
        self.notify();
    }

    /// Why the ring is closed, or `None` while it is open.
    pub(crate) fn closed_reason(&self) -> Option<SessionError> {
        match &self.ring().state {
            HubState::Open => None,
            HubState::Closed(reason) => Some(reason.clone()),
        }
    }

    /// The position at which a new subscription starts.
    pub(crate) fn position(&self) -> u64 {
        let ring = self.ring();
        ring.first + ring.entries.len() as u64
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Reads the next entry for a reader at `position` of the ring that has seen everything since `complete_from` and
    /// wants the event `next`. Previews of a call are left out if the reader missed the call's beginning, because a
    /// secret could not be redacted then.
    pub(crate) fn read(&self, position: u64, complete_from: &mut u64, next: u64) -> HubRead {
        let ring = self.ring();
        if position < ring.first {
            *complete_from = ring.first;
        }
        let pending_end = match ring.turn_ends {
            TurnEndDelivery::Pending(seq) => seq,
            TurnEndDelivery::Immediate | TurnEndDelivery::Deferred => u64::MAX,
        };
        if next < ring.recorded {
            // The recorded events in the ring have no gap, up to the last recorded event.
            let in_ring =
                ring.entries.iter().filter(|(entry, _)| matches!(entry, RingEntry::Recorded(..))).count();
            let oldest = ring.recorded - in_ring as u64;
            if next < oldest {
                return HubRead::InJournal { until: oldest };
            }
        }
        let skipped = usize::try_from(position.saturating_sub(ring.first)).unwrap_or(usize::MAX);
        for (number, (entry, _)) in ring.entries.iter().enumerate().skip(skipped) {
            let after = ring.first + number as u64 + 1;
            match entry {
                // The reader has already got it from the journal.
                RingEntry::Recorded(seq, _) if *seq < next => {}
                RingEntry::Recorded(seq, _) if *seq >= pending_end => break,
                RingEntry::Recorded(..) => return HubRead::Entry(entry.clone(), after),
                // It is visible if it belongs to the reader's next event or to the running call, not to a call that ended.
                RingEntry::Preview(_) | RingEntry::Progress(_) => {
                    let before = ring.recorded_before(number);
                    let is_visible = next == before || (next > before && before >= ring.preview_floor);
                    if is_visible && ring.is_complete(number, *complete_from) {
                        return HubRead::Entry(entry.clone(), after);
                    }
                }
            }
        }
        match &ring.state {
            HubState::Closed(reason) => HubRead::Closed(reason.clone()),
            HubState::Open => HubRead::Empty,
        }
    }

    fn push(&self, entry: RingEntry, bytes: usize) {
        let mut ring = self.ring();
        if let RingEntry::Recorded(seq, event) = &entry {
            if *seq != ring.recorded {
                ring.clear();
            }
            ring.recorded = seq.saturating_add(1);
            if bounds_call(&event.kind) {
                ring.preview_floor = ring.recorded;
                ring.call_start = ring.first + ring.entries.len() as u64;
            }
            if let (TurnEndDelivery::Deferred, EventKind::TurnFinished { .. }) = (ring.turn_ends, &event.kind)
            {
                ring.turn_ends = TurnEndDelivery::Pending(*seq);
            }
        }
        ring.bytes = ring.bytes.saturating_add(bytes);
        ring.entries.push_back((entry, bytes));
        while ring.entries.len() > self.limits.entries
            || (ring.bytes > self.limits.bytes && ring.entries.len() > 1)
        {
            ring.drop_first();
        }
        drop(ring);
        self.notify();
    }
}

/// Whether this event starts or ends a model call or a summary.
const fn bounds_call(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::TurnStarted { .. }
            | EventKind::ModelCallStarted { .. }
            | EventKind::ModelAnswered { .. }
            | EventKind::ModelCallFailed { .. }
            | EventKind::ModelCallAbandoned { .. }
            | EventKind::CompactionStarted { .. }
            | EventKind::TurnFinished { .. }
    )
}

impl Ring {
    fn clear(&mut self) {
        self.first += self.entries.len() as u64;
        self.entries.clear();
        self.bytes = 0;
    }

    fn drop_first(&mut self) {
        if let Some((_, bytes)) = self.entries.pop_front() {
            self.first += 1;
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    /// Whether the call of this entry started at `complete_from` or later. Always true if that is 0: nothing was missed.
    fn is_complete(&self, number: usize, complete_from: u64) -> bool {
        let bounds =
            |entry: &RingEntry| matches!(entry, RingEntry::Recorded(_, event) if bounds_call(&event.kind));
        let began = self.entries.iter().take(number).rposition(|(entry, _)| bounds(entry));
        let began = began.map_or(self.call_start, |number| self.first + number as u64);
        complete_from == 0 || (complete_from..=self.first + number as u64).contains(&began)
    }

    /// How many events were recorded before this entry.
    fn recorded_before(&self, number: usize) -> u64 {
        let later = self
            .entries
            .iter()
            .skip(number)
            .filter(|(entry, _)| matches!(entry, RingEntry::Recorded(..)))
            .count();
        self.recorded - later as u64
    }
}

impl ConversationObserver for EventHub {
    fn on_recorded(&self, seq: u64, event: &Event) {
        let bytes = serde_json::to_vec(event).map_or(0, |json| json.len());
        self.push(RingEntry::Recorded(seq, Arc::new(event.clone())), bytes);
    }

    fn on_preview(&self, event: &ModelEvent) {
        let bytes = match event {
            ModelEvent::TextDelta { text, .. } | ModelEvent::ThinkingDelta { text, .. } => text.len(),
            ModelEvent::ToolInputDelta { partial_json, .. } => partial_json.len(),
            _ => 0,
        };
        self.push(RingEntry::Preview(Arc::new(event.clone())), bytes + size_of::<ModelEvent>());
    }

    fn on_tool_progress(&self, progress: &ToolProgress) {
        let bytes = progress.message.len() + size_of::<ToolProgress>();
        self.push(RingEntry::Progress(Arc::new(progress.clone())), bytes);
    }
}

#[cfg(test)]
mod tests {
    use conjure_base::{Timestamp, TurnId};
    use conjure_conversation::Block;

    use super::*;

    fn event(kind: EventKind) -> Event {
        Event { at: Timestamp::from_millis(1), kind }
    }

    fn begins(call: u32) -> Event {
        event(EventKind::ModelCallStarted { turn: TurnId::FIRST, call, effects: None })
    }

    fn turn_ends(call: u32) -> Event {
        event(EventKind::ModelCallAbandoned { turn: TurnId::FIRST, call })
    }

    fn reported() -> Event {
        event(EventKind::NoteAdded { note: Block::text("by the way") })
    }

    struct Reader<'a> {
        hub: &'a EventHub,
        position: u64,
        complete_from: u64,
        next: u64,
    }

    impl<'a> Reader<'a> {
        fn of(hub: &'a EventHub, next: u64) -> Self {
            Self { hub, position: 0, complete_from: 0, next }
        }

        /// Reads everything available: numbers of events, and texts.
        fn read(&mut self) -> String {
            let mut all = String::new();
            while let HubRead::Entry(entry, position) =
                self.hub.read(self.position, &mut self.complete_from, self.next)
            {
                self.position = position;
                match entry {
                    RingEntry::Recorded(seq, _) => {
                        self.next = seq + 1;
                        all.push_str(&seq.to_string());
                    }
                    RingEntry::Preview(preview) => match &*preview {
                        ModelEvent::TextDelta { text, .. } => all.push_str(text),
                        other => panic!("{other:?}"),
                    },
                    RingEntry::Progress(progress) => all.push_str(&progress.message),
                }
            }
            all
        }
    }

    fn say(hub: &EventHub, texts: &str) {
        for text in texts.chars() {
            hub.on_preview(&ModelEvent::TextDelta { index: 0, text: text.to_string() });
        }
    }

    #[test]
    fn who_comes_late_hears_the_call_from_its_beginning_and_nothing_of_those_before() {
        let hub = EventHub::new(RingLimits { entries: 100, bytes: 1 << 20 });
        hub.on_recorded(0, &begins(1));
        say(&hub, "ab");
        hub.on_recorded(1, &turn_ends(1));
        assert_eq!(Reader::of(&hub, 2).read(), "");
        hub.on_recorded(2, &begins(2));
        say(&hub, "cd");
        hub.on_recorded(3, &reported());
        say(&hub, "e");
        assert_eq!(Reader::of(&hub, 4).read(), "cde");
        assert_eq!(Reader::of(&hub, 3).read(), "cd3e");
        assert_eq!(Reader::of(&hub, 0).read(), "0ab12cd3e");
    }

    #[test]
    fn the_progress_of_a_call_is_told_until_the_next_model_call() {
        let hub = EventHub::new(RingLimits { entries: 100, bytes: 1 << 20 });
        hub.on_recorded(0, &begins(1));
        say(&hub, "a");
        hub.on_recorded(1, &turn_ends(1));
        let call_id = conjure_base::CallId::new("toolu_1");
        let message = "half".to_owned();
        hub.on_tool_progress(&ToolProgress { call_id, done: 1.0, total: Some(2.0), message });
        assert_eq!(Reader::of(&hub, 0).read(), "0a1half");
        assert_eq!(Reader::of(&hub, 2).read(), "half");
        hub.on_recorded(2, &begins(2));
        assert_eq!(Reader::of(&hub, 3).read(), "", "it is over");
    }

    #[test]
    fn who_has_lost_the_beginning_of_a_call_hears_no_more_of_it() {
        let hub = EventHub::new(RingLimits { entries: 4, bytes: 1 << 20 });
        let (mut quick, mut slow) = (Reader::of(&hub, 0), Reader::of(&hub, 0));
        hub.on_recorded(0, &begins(1));
        say(&hub, "ab");
        assert_eq!((quick.read(), slow.read()), ("0ab".to_owned(), "0ab".to_owned()));
        say(&hub, "cd");
        let mut late = Reader::of(&hub, 1);
        assert_eq!((quick.read().as_str(), late.read().as_str()), ("cd", ""));
        say(&hub, "efghi");
        assert_eq!((slow.read().as_str(), late.read().as_str()), ("", ""), "a part was dropped");
        hub.on_recorded(1, &turn_ends(1));
        hub.on_recorded(2, &begins(2));
        say(&hub, "j");
        for reader in [&mut slow, &mut late] {
            assert_eq!(reader.read(), "12j");
        }
    }
}
