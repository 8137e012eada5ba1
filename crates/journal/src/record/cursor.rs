//! [`RecordCursor`]: a position between two records of a query, as opaque text.

use std::fmt;
use std::str::FromStr;

use conjure_base::Timestamp;

use super::error::RecordError;
use super::row::{IndexValue, MAX_INDEX_TEXT_BYTES};

/// The position after a record of a query. It stays valid when records are inserted, changed or deleted, and after a restart.
///
/// Clients store its text and send it back. A query of another scope, kind, filter, order or direction refuses it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordCursor {
    /// The fingerprint of its query.
    pub(super) query: u64,
    /// The value in the order's index; `None` in the order of time.
    pub(crate) value: Option<IndexValue>,
    pub(crate) created_at: Timestamp,
    pub(crate) number: u64,
}

/// The start of the text of every cursor.
const FORMAT: &str = "r1";

/// A value as text without `_`.
pub(super) fn value_text(value: &IndexValue) -> String {
    match value {
        IndexValue::Number(number) => format!("n{:x}", number.cast_unsigned()),
        IndexValue::Text(text) => text.bytes().fold("t".to_owned(), |hex, byte| format!("{hex}{byte:02x}")),
    }
}

fn parse_value(text: &str) -> Option<IndexValue> {
    if let Some(number) = text.strip_prefix('n') {
        return Some(IndexValue::Number(parse_hex(number)?.cast_signed()));
    }
    let hex = text.strip_prefix('t').filter(|hex| hex.len() <= 2 * MAX_INDEX_TEXT_BYTES)?;
    let bytes = hex.as_bytes().chunks(2).map(|digits| {
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 2)?;
        u8::try_from(parse_hex(digits)?).ok()
    });
    Some(IndexValue::Text(String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()?))
}

fn parse_hex(text: &str) -> Option<u64> {
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u64::from_str_radix(text, 16).ok().filter(|_| is_hex)
}

impl fmt::Display for RecordCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { query, value, created_at, number } = self;
        write!(f, "{FORMAT}_{query:x}_{:x}_{number:x}", created_at.millis())?;
        value.as_ref().map_or(Ok(()), |value| write!(f, "_{}", value_text(value)))
    }
}

impl FromStr for RecordCursor {
    type Err = RecordError;

    fn from_str(text: &str) -> Result<Self, RecordError> {
        let parse = || {
            let mut parts = text.split('_');
            parts.next().filter(|format| *format == FORMAT)?;
            let mut number = || parse_hex(parts.next()?);
            let (query, created_at, number) = (number()?, Timestamp::from_millis(number()?), number()?);
            let value = match parts.next() {
                Some(value) => Some(parse_value(value)?),
                None => None,
            };
            parts.next().is_none().then_some(Self { query, value, created_at, number })
        };
        parse().ok_or(RecordError::WrongCursor)
    }
}
