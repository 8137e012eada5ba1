//! What a session tells those who listen: a bounded ring of what was recorded last and of previews.
//!
//! It is shared by the session's owner, who writes, and by any number of subscriptions, which read at their own pace and
//! keep nothing here. What has left the ring is read from the journal, so a slow reader costs nothing. State: the ring;
//! losing it costs previews only.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_conversation::{Event, EventKind, ModelEvent, Observer};
use tokio::sync::watch;

use super::error::SessionError;

/// How many entries a ring has, and how many bytes of previews and blocks it roughly holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingLimits {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

/// Something that happened, in the order in which it did.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Recorded(u64, Arc<Event>),
    Preview(Arc<ModelEvent>),
}

/// Whether a session goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    /// It does, or will with the next message.
    Alive,
    /// Not by itself, for this reason.
    Over(SessionError),
}

pub(crate) struct Hub {
    ring: Mutex<Ring>,
    limits: RingLimits,
    /// Changed by everything that a reader may wait for.
    news: watch::Sender<u64>,
}

struct Ring {
    entries: VecDeque<(Entry, usize)>,
    bytes: usize,
    /// How many entries were there before the first of these.
    first: u64,
    /// How many events are recorded.
    recorded: u64,
    standing: Standing,
    ends: Ends,
}

/// How the end of a turn is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// As soon as it is recorded.
    Told,
    /// Later, when its files are on the host.
    HeldBack,
    /// This one is recorded, and held back.
    Held(u64),
}

/// What a reader finds.
pub(crate) enum Found {
    /// The next entry; the place after it.
    Entry(Entry, u64),
    /// The event that is wanted has left the ring, or never was in it: it is in the journal, as all before this one are.
    InJournal { until: u64 },
    /// Nothing yet.
    Nothing,
    /// Nothing more.
    Over(SessionError),
}

impl Hub {
    pub(crate) fn new(limits: RingLimits) -> Self {
        let ring = Ring {
            entries: VecDeque::new(),
            bytes: 0,
            first: 0,
            recorded: 0,
            standing: Standing::Alive,
            ends: Ends::Told,
        };
        Self { ring: Mutex::new(ring), limits, news: watch::Sender::new(0) }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self) {
        self.news.send_modify(|news| *news = news.wrapping_add(1));
    }

    /// So many events are recorded: what this ring did not hear of is in the journal.
    pub(crate) fn loaded(&self, recorded: u64) {
        let mut ring = self.ring();
        if ring.recorded != recorded {
            ring.clear();
            ring.recorded = recorded;
        }
        ring.standing = Standing::Alive;
        ring.ends = Ends::Told;
        drop(ring);
        self.tell();
    }

    /// From now on the end of a turn is held back.
    pub(crate) fn hold_ends(&self) {
        self.ring().ends = Ends::HeldBack;
    }

    /// It is told.
    pub(crate) fn tell_ends(&self) {
        self.ring().ends = Ends::Told;
        self.tell();
    }

    /// Whether the end of a turn that is recorded now is held back.
    pub(crate) fn holds_ends(&self) -> bool {
        self.ring().ends != Ends::Told
    }

    /// The session was given up; whoever waits for more is told.
    pub(crate) fn give_up(&self, why: String) {
        self.end(SessionError::NotStarted { reason: why });
    }

    /// Nothing more comes by itself; whoever waits for more is told why. The first reason stands.
    pub(crate) fn end(&self, why: SessionError) {
        let mut ring = self.ring();
        if ring.standing == Standing::Alive {
            ring.standing = Standing::Over(why);
        }
        drop(ring);
        self.tell();
    }

    /// Why nothing more comes by itself, where that is so.
    pub(crate) fn over(&self) -> Option<SessionError> {
        match &self.ring().standing {
            Standing::Alive => None,
            Standing::Over(why) => Some(why.clone()),
        }
    }

    pub(crate) fn recorded_events(&self) -> u64 {
        self.ring().recorded
    }

    /// Where whoever listens from now on begins.
    pub(crate) fn place(&self) -> u64 {
        let ring = self.ring();
        ring.first + ring.entries.len() as u64
    }

    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// What there is for a reader who is at this place of the ring and wants the event `next`.
    pub(crate) fn read(&self, place: u64, next: u64) -> Found {
        let ring = self.ring();
        let told = match ring.ends {
            Ends::Held(seq) => seq,
            Ends::Told | Ends::HeldBack => u64::MAX,
        };
        if next < ring.recorded {
            // Every recorded event of the ring is there without a hole up to the last.
            let in_ring =
                ring.entries.iter().filter(|(entry, _)| matches!(entry, Entry::Recorded(..))).count();
            let oldest = ring.recorded - in_ring as u64;
            if next < oldest {
                return Found::InJournal { until: oldest };
            }
        }
        let skipped = usize::try_from(place.saturating_sub(ring.first)).unwrap_or(usize::MAX);
        for (number, (entry, _)) in ring.entries.iter().enumerate().skip(skipped) {
            let after = ring.first + number as u64 + 1;
            match entry {
                // Seen already, from the journal.
                Entry::Recorded(seq, _) if *seq < next => {}
                Entry::Recorded(seq, _) if *seq >= told => break,
                Entry::Recorded(..) => return Found::Entry(entry.clone(), after),
                // A preview of what comes next, and not of what is over.
                Entry::Preview(_) if next >= ring.recorded_before(number) => {
                    return Found::Entry(entry.clone(), after);
                }
                Entry::Preview(_) => {}
            }
        }
        match &ring.standing {
            Standing::Over(why) => Found::Over(why.clone()),
            Standing::Alive => Found::Nothing,
        }
    }

    fn push(&self, entry: Entry, bytes: usize) {
        let mut ring = self.ring();
        if let Entry::Recorded(seq, event) = &entry {
            if *seq != ring.recorded {
                ring.clear();
            }
            ring.recorded = seq.saturating_add(1);
            if let (Ends::HeldBack, EventKind::TurnFinished { .. }) = (ring.ends, &event.kind) {
                ring.ends = Ends::Held(*seq);
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
        self.tell();
    }
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

    /// How many events were recorded before the entry of this number.
    fn recorded_before(&self, number: usize) -> u64 {
        let later = self
            .entries
            .iter()
            .skip(number)
            .filter(|(entry, _)| matches!(entry, Entry::Recorded(..)))
            .count();
        self.recorded - later as u64
    }
}

impl Observer for Hub {
    fn recorded(&self, seq: u64, event: &Event) {
        let bytes = serde_json::to_vec(event).map_or(0, |json| json.len());
        self.push(Entry::Recorded(seq, Arc::new(event.clone())), bytes);
    }

    fn preview(&self, event: &ModelEvent) {
        let bytes = match event {
            ModelEvent::TextDelta { text, .. } | ModelEvent::ThinkingDelta { text, .. } => text.len(),
            ModelEvent::ToolInputDelta { partial_json, .. } => partial_json.len(),
            _ => 0,
        };
        self.push(Entry::Preview(Arc::new(event.clone())), bytes + size_of::<ModelEvent>());
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("recorded", &self.recorded_events()).finish_non_exhaustive()
    }
}
