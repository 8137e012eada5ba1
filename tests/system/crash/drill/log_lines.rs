//! The log lines of a host to its parent: one line for each acknowledged operation.

use std::fmt;
use std::io::Write as _;
use std::str::FromStr;

use conjure::journal::SessionKey;
use conjure::{SessionId, TenantId};

use super::Result;

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogLine {
    /// The host has started, which sweeps what dead ones left, and waits to be let loose.
    Ready,
    /// The session is open.
    Opened(SessionKey),
    /// It has had turns enough: the next host need not take it up.
    Retired(SessionKey),
    /// This message is recorded there, as a turn or in the queue.
    Sent(SessionKey, u64, String),
    /// The same for one that steers.
    Steered(SessionKey, u64, String),
    /// The decision on this call is recorded.
    Decided(SessionKey, String),
    /// A turn was interrupted, and that is recorded before this place.
    Interrupted(SessionKey, u64),
    /// A listener was told of a recorded event, with this fingerprint.
    Seen(SessionKey, u64, u64),
    /// The session is about to be deleted.
    Deleting(SessionKey),
    /// It is deleted.
    Deleted(SessionKey),
    /// All turns are over.
    Settled,
    /// The orderly end.
    Stopped,
    /// A model was sent what no service accepts.
    Invalid(String),
    /// A secret was told.
    Exposed(String),
    /// A violated invariant.
    Fault(String),
}

impl LogLine {
    /// Says it to the parent, in one write: what was said is in the pipe, whatever becomes of this process.
    pub(crate) fn say(&self) {
        let mut line = self.to_string().replace('\n', " ");
        line.push('\n');
        // Without a parent nobody wants to know.
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }
}

/// The fingerprint of a line (FNV-1a).
pub(crate) fn fingerprint(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

pub(crate) fn write_key(key: &SessionKey) -> String {
    format!("{}:{}", key.tenant, key.session)
}

pub(crate) fn read_key(text: &str) -> Result<SessionKey> {
    let (tenant, session) = text.split_once(':').ok_or_else(|| format!("`{text}` is no session"))?;
    Ok(SessionKey::new(TenantId::new(tenant)?, SessionId::from_str(session)?))
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Opened(key) => write!(f, "opened {}", write_key(key)),
            Self::Retired(key) => write!(f, "retired {}", write_key(key)),
            Self::Sent(key, seq, text) => write!(f, "sent {} {seq} {text}", write_key(key)),
            Self::Steered(key, seq, text) => write!(f, "steered {} {seq} {text}", write_key(key)),
            Self::Decided(key, call) => write!(f, "decided {} {call}", write_key(key)),
            Self::Interrupted(key, seq) => write!(f, "interrupted {} {seq}", write_key(key)),
            Self::Seen(key, seq, print) => write!(f, "seen {} {seq} {print}", write_key(key)),
            Self::Deleting(key) => write!(f, "deleting {}", write_key(key)),
            Self::Deleted(key) => write!(f, "deleted {}", write_key(key)),
            Self::Settled => f.write_str("settled"),
            Self::Stopped => f.write_str("stopped"),
            Self::Invalid(what) => write!(f, "invalid {what}"),
            Self::Exposed(what) => write!(f, "exposed {what}"),
            Self::Fault(what) => write!(f, "fault {what}"),
        }
    }
}

impl FromStr for LogLine {
    type Err = Box<dyn std::error::Error + Send + Sync>;

    fn from_str(line: &str) -> Result<Self> {
        let (kind, remainder) = line.split_once(' ').unwrap_or((line, ""));
        let mut parts = remainder.split(' ');
        let mut part = || parts.next().ok_or_else(|| format!("`{line}` is cut"));
        Ok(match kind {
            "ready" => Self::Ready,
            "opened" => Self::Opened(read_key(part()?)?),
            "retired" => Self::Retired(read_key(part()?)?),
            "sent" => Self::Sent(read_key(part()?)?, part()?.parse()?, part()?.to_owned()),
            "steered" => Self::Steered(read_key(part()?)?, part()?.parse()?, part()?.to_owned()),
            "decided" => Self::Decided(read_key(part()?)?, part()?.to_owned()),
            "interrupted" => Self::Interrupted(read_key(part()?)?, part()?.parse()?),
            "seen" => Self::Seen(read_key(part()?)?, part()?.parse()?, part()?.parse()?),
            "deleting" => Self::Deleting(read_key(part()?)?),
            "deleted" => Self::Deleted(read_key(part()?)?),
            "settled" => Self::Settled,
            "stopped" => Self::Stopped,
            "invalid" => Self::Invalid(remainder.to_owned()),
            "exposed" => Self::Exposed(remainder.to_owned()),
            "fault" => Self::Fault(remainder.to_owned()),
            _ => return Err(format!("`{line}` is no word of the host").into()),
        })
    }
}

impl LogLine {
    /// Of which session it is.
    pub(crate) const fn session(&self) -> Option<&SessionKey> {
        match self {
            Self::Opened(key)
            | Self::Retired(key)
            | Self::Sent(key, ..)
            | Self::Steered(key, ..)
            | Self::Decided(key, _)
            | Self::Deleting(key)
            | Self::Deleted(key)
            | Self::Interrupted(key, _)
            | Self::Seen(key, ..) => Some(key),
            _ => None,
        }
    }
}
