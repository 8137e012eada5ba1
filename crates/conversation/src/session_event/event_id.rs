//! The ids of session events.
//!
//! An id is computed from one recorded event alone. So it never changes: it is the same live, in a list, and after a restart. A
//! later event can name an earlier one in the same way. For instance, the result of a tool call names the event of the call.

use std::fmt;
use std::str::FromStr;

use conjure_base::{CallId, SessionId, TurnId};
use serde::{Serialize, Serializer};

use crate::session::queue::QueueId;

/// The prefix of an id.
const PREFIX: &str = "sevt_";

/// The prefix of the ids of schema 1. Such an id names no session.
const OLD_PREFIX: &str = "evt_";

/// The id of a session event. It is unique among the events of all sessions.
///
/// Its text begins with `sevt_`. The rest is opaque to readers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventId {
    /// `None`: an id of schema 1.
    session: Option<SessionId>,
    key: EventKey,
}

/// The event that an id names within its session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum EventKey {
    /// A recorded event, and the position among the session events that are derived from it.
    Recorded { seq: u64, place: usize },
    /// The change of the status that a recorded event causes.
    Status { seq: u64 },
    /// A message that was queued.
    Queued { queue: u64 },
    /// The start of a model call.
    ModelCall { turn: u64, call: u32 },
    /// The message or thinking that begins with this block of a response.
    Block { turn: u64, call: u32, block: usize },
    /// A tool call.
    ToolUse(CallId),
    /// The questions of a tool call.
    Input { call: CallId, round: u32 },
}

impl EventId {
    pub(crate) const fn recorded(session: SessionId, seq: u64, place: usize) -> Self {
        Self::new(session, EventKey::Recorded { seq, place })
    }

    pub(crate) const fn status(session: SessionId, seq: u64) -> Self {
        Self::new(session, EventKey::Status { seq })
    }

    pub(crate) const fn model_call(session: SessionId, turn: TurnId, call: u32) -> Self {
        Self::new(session, EventKey::ModelCall { turn: turn.number(), call })
    }

    pub(crate) const fn block(session: SessionId, turn: TurnId, call: u32, block: usize) -> Self {
        Self::new(session, EventKey::Block { turn: turn.number(), call, block })
    }

    const fn new(session: SessionId, key: EventKey) -> Self {
        Self { session: Some(session), key }
    }

    /// The id of the `user.message` event of a queued message.
    #[must_use]
    pub const fn for_queued(session: SessionId, queue: QueueId) -> Self {
        Self::new(session, EventKey::Queued { queue: queue.get() })
    }

    /// The id of the `agent.tool_use` or `agent.custom_tool_use` event of a tool call.
    #[must_use]
    pub const fn for_call(session: SessionId, call: CallId) -> Self {
        Self::new(session, EventKey::ToolUse(call))
    }

    /// The id of the `agent.input_request` event of a tool call in this round.
    #[must_use]
    pub const fn for_input(session: SessionId, call: CallId, round: u32) -> Self {
        Self::new(session, EventKey::Input { call, round })
    }

    /// The tool call and its round, if this is the id of an `agent.input_request` event of this session.
    #[must_use]
    pub fn input_in(&self, session: SessionId) -> Option<(&CallId, u32)> {
        match &self.key {
            EventKey::Input { call, round } if self.session == Some(session) => Some((call, *round)),
            _ => None,
        }
    }

    /// The tool call that the id names, if it is the id of an `agent.tool_use` or `agent.custom_tool_use` event of this session.
    #[must_use]
    pub fn call_in(&self, session: SessionId) -> Option<&CallId> {
        match &self.key {
            EventKey::ToolUse(call) if self.session == Some(session) => Some(call),
            _ => None,
        }
    }

    /// The id of the message or the thinking that begins with this block of a response, if this is the id of the
    /// `span.model_request_start` event of its call. Blocks count from 0. A message spans adjacent blocks up to the next thinking
    /// or tool call, so its id is that of its first block.
    #[must_use]
    pub const fn response_block(&self, block: usize) -> Option<Self> {
        match (self.session, &self.key) {
            (Some(session), EventKey::ModelCall { turn, call }) => {
                Some(Self::new(session, EventKey::Block { turn: *turn, call: *call, block }))
            }
            _ => None,
        }
    }

    /// The sequence number of the recorded event, if the id has it.
    #[must_use]
    pub const fn seq(&self) -> Option<u64> {
        match &self.key {
            EventKey::Recorded { seq, .. } | EventKey::Status { seq } => Some(*seq),
            _ => None,
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.session {
            Some(session) => {
                let session = session.to_string();
                let digits = session.rsplit('_').next().unwrap_or_default();
                write!(f, "{PREFIX}{digits}_")?;
            }
            None => f.write_str(OLD_PREFIX)?,
        }
        match &self.key {
            EventKey::Recorded { seq, place } if self.session.is_none() => write!(f, "{seq}_{place}"),
            EventKey::Recorded { seq, place } => write!(f, "e{seq}_{place}"),
            EventKey::Status { seq } => write!(f, "s{seq}"),
            EventKey::Queued { queue } => write!(f, "q{queue}"),
            EventKey::ModelCall { turn, call } => write!(f, "m{turn}_{call}"),
            EventKey::Block { turn, call, block } => write!(f, "b{turn}_{call}_{block}"),
            EventKey::ToolUse(call) => write!(f, "c{}", escaped(call.as_str())),
            EventKey::Input { call, round } => write!(f, "i{round}_{}", escaped(call.as_str())),
        }
    }
}

/// The error of parsing a text that is not the id of a session event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an event id: it must be the `id` of an event, which begins with `sevt_`")]
pub struct EventIdError {
    text: String,
}

impl FromStr for EventId {
    type Err = EventIdError;

    fn from_str(text: &str) -> Result<Self, EventIdError> {
        parse(text).ok_or_else(|| EventIdError { text: text.chars().take(200).collect() })
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn parse(text: &str) -> Option<EventId> {
    if let Some(rest) = text.strip_prefix(OLD_PREFIX) {
        let (seq, place) = rest.split_once('_')?;
        let key = EventKey::Recorded { seq: number(seq)?, place: number(place)? };
        return Some(EventId { session: None, key });
    }
    let (digits, key) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let session: SessionId = format!("sesn_{digits}").parse().ok()?;
    let rest = key.get(1..)?;
    let key = match key.as_bytes().first()? {
        b'c' => EventKey::ToolUse(CallId::new(unescaped(rest)?)),
        b's' => EventKey::Status { seq: number(rest)? },
        b'q' => EventKey::Queued { queue: number(rest)? },
        b'i' => {
            let (round, call) = rest.split_once('_')?;
            EventKey::Input { call: CallId::new(unescaped(call)?), round: number(round)? }
        }
        kind => {
            let mut parts = rest.split('_');
            let (first, second, third) = (parts.next()?, parts.next()?, parts.next());
            if parts.next().is_some() {
                return None;
            }
            match (kind, third) {
                (b'e', None) => EventKey::Recorded { seq: number(first)?, place: number(second)? },
                (b'm', None) => EventKey::ModelCall { turn: number(first)?, call: number(second)? },
                (b'b', Some(block)) => {
                    EventKey::Block { turn: number(first)?, call: number(second)?, block: number(block)? }
                }
                _ => return None,
            }
        }
    };
    Some(EventId { session: Some(session), key })
}

/// A number in its only form: digits, without a sign or leading zeros.
fn number<N: FromStr + fmt::Display>(text: &str) -> Option<N> {
    let number: N = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// The text, with each byte that is unusual in call ids written as `.` and two hex digits.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!(".{byte:02x}"));
        }
    }
    escaped
}

/// The text that [`escaped`] writes like this; `None` if there is none.
fn unescaped(written: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'.' => {
                let digits = [rest.next()?, rest.next()?];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok().filter(|text| escaped(text) == written)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SESSION: SessionId = SessionId::from_bits(0x1f);

    #[test]
    fn each_kind_of_id_has_a_text_of_its_own() {
        let turn = TurnId::FIRST;
        let hex = "0000000000000000000000000000001f";
        let start = EventId::model_call(SESSION, turn, 2);
        for (id, expected) in [
            (EventId::recorded(SESSION, 12, 1), "e12_1"),
            (EventId::status(SESSION, 12), "s12"),
            (EventId::for_queued(SESSION, QueueId::default()), "q0"),
            (start.clone(), "m1_2"),
            (EventId::block(SESSION, turn, 2, 0), "b1_2_0"),
            (EventId::for_call(SESSION, CallId::new("toolu_01-a")), "ctoolu_01-a"),
            (EventId::for_call(SESSION, CallId::new("a b.c")), "ca.20b.2ec"),
            (EventId::for_input(SESSION, CallId::new("toolu_1_a"), 2), "i2_toolu_1_a"),
        ] {
            assert_eq!(id.to_string(), format!("sevt_{hex}_{expected}"));
            assert_eq!(id.to_string().parse::<EventId>().unwrap(), id);
        }
        assert_eq!(start.response_block(3), Some(EventId::block(SESSION, turn, 2, 3)));
        let old: EventId = "evt_12_0".parse().unwrap();
        assert_eq!((old.seq(), old.to_string().as_str()), (Some(12), "evt_12_0"));
    }

    #[test]
    fn a_call_is_found_by_its_event_in_its_session_alone() {
        let id = EventId::for_call(SESSION, CallId::new("a"));
        assert_eq!(id.call_in(SESSION), Some(&CallId::new("a")));
        assert_eq!(id.call_in(SessionId::from_bits(7)), None);
        assert_eq!(EventId::status(SESSION, 1).call_in(SESSION), None);
    }

    #[test]
    fn what_is_no_id_is_refused() {
        let hex = "0000000000000000000000000000001f";
        for text in ["", "sevt_", "evt_1", "evt_01_0", "evt_+1_0", "evt_1_0_0", "sevt_1f_e1_0"] {
            assert!(text.parse::<EventId>().is_err(), "{text}");
        }
        for key in ["", "e1", "e01_0", "e1_0_0", "m1_1_1", "b1_1", "x1", "ca.2", "ca.zz", "c.61", "s-1", "qé"]
        {
            assert!(format!("sevt_{hex}_{key}").parse::<EventId>().is_err(), "{key}");
        }
    }

    proptest! {
        #[test]
        fn the_id_of_any_call_reads_back(call in ".{0,40}") {
            let id = EventId::for_call(SESSION, CallId::new(call));
            prop_assert_eq!(id.to_string().parse::<EventId>().unwrap(), id);
        }

        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in "(sevt_0000000000000000000000000000001f_)?.{0,30}") {
            if let Ok(id) = text.parse::<EventId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
