//! Events and snapshots as rows: where a body goes, and how damage is found.
//!
//! SQLite checks the pages of its log and not those of its file, so each row has a checksum of all that it says: the first
//! eight bytes of a SHA-256.

use conjure_base::{Digest, DigestHasher};
use rusqlite::Row;

use super::blobs::ReadFailure;
use super::fault::Failure;
use super::tables::Tables;
use crate::error::{JournalError, Place};
use crate::event::Recorded;
use crate::key::{Epoch, SessionKey};
use crate::snapshot::Snapshot;

/// A body, or where it is.
pub(crate) enum Stored<'a> {
    Here(&'a [u8]),
    Blob(Digest),
}

impl Stored<'_> {
    /// What the column `body` holds.
    pub(crate) const fn body(&self) -> Option<&[u8]> {
        match self {
            Self::Here(body) => Some(body),
            Self::Blob(_) => None,
        }
    }

    /// What the column `blob` holds.
    pub(crate) fn blob(&self) -> Option<&[u8]> {
        match self {
            Self::Here(_) => None,
            Self::Blob(digest) => Some(digest.as_bytes().as_slice()),
        }
    }
}

/// The checksum of a row whose numbers, kind and body are these. Each part is preceded by its length or has always the same.
pub(crate) fn checksum(key: &SessionKey, numbers: [u64; 3], kind: &str, stored: &Stored<'_>) -> i64 {
    let mut hasher = DigestHasher::new();
    hasher.update(key.session.to_string().as_bytes());
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(&(kind.len() as u64).to_le_bytes());
    hasher.update(kind.as_bytes());
    match stored {
        Stored::Here(body) => {
            hasher.update(b"here");
            hasher.update(body);
        }
        Stored::Blob(digest) => {
            hasher.update(b"blob");
            hasher.update(digest.as_bytes());
        }
    }
    let digest = hasher.finish();
    let (first, _) = digest.as_bytes().split_at(8);
    i64::from_le_bytes(first.try_into().unwrap_or_default())
}

/// An integer column that holds no negative numbers.
pub(crate) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

/// A number as SQLite keeps it. None of ours is so large that it does not fit.
pub(crate) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Why a row is not what was recorded.
pub(crate) enum Damage {
    /// The body is not in the store, or no more: the row must be read again.
    Absent(Place),
    Failed(Failure),
}

impl From<rusqlite::Error> for Damage {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl Damage {
    fn at(place: Place, reason: &str) -> Self {
        Self::Failed(JournalError::Corrupt { place, reason: reason.to_owned() }.into())
    }
}

/// The columns of an event: `seq, epoch, kind, version, body, blob, checksum`.
pub(crate) fn event(tables: &Tables<'_>, key: &SessionKey, row: &Row<'_>) -> Result<Recorded, Damage> {
    let seq = number(row, 0)?;
    let place = Place::Event { session: key.clone(), seq };
    let epoch = number(row, 1)?;
    let kind: String = row.get(2)?;
    let version = number(row, 3)?;
    let body = body(tables, key, row, 4, [seq, epoch, version], &kind, &place)?;
    let version = u32::try_from(version).map_err(|_| Damage::at(place, "its version is out of range"))?;
    Ok(Recorded { seq, epoch: Epoch::from_number(epoch), kind, version, body })
}

/// The columns of a snapshot: `seq, version, body, blob, checksum`.
pub(crate) fn snapshot(tables: &Tables<'_>, key: &SessionKey, row: &Row<'_>) -> Result<Snapshot, Damage> {
    let place = Place::Snapshot { session: key.clone() };
    let seq = number(row, 0)?;
    let version = number(row, 1)?;
    let body = body(tables, key, row, 2, [seq, 0, version], "", &place)?;
    let version = u32::try_from(version).map_err(|_| Damage::at(place, "its version is out of range"))?;
    Ok(Snapshot { seq, version, body })
}

/// The body from the columns `body, blob, checksum`, the first of which is `column`.
fn body(
    tables: &Tables<'_>,
    key: &SessionKey,
    row: &Row<'_>,
    column: usize,
    numbers: [u64; 3],
    kind: &str,
    place: &Place,
) -> Result<Vec<u8>, Damage> {
    let expected: i64 = row.get(column + 2)?;
    let here: Option<Vec<u8>> = row.get(column)?;
    let blob: Option<Vec<u8>> = row.get(column + 1)?;
    let check = |stored: &Stored<'_>| {
        if checksum(key, numbers, kind, stored) == expected {
            Ok(())
        } else {
            Err(Damage::at(place.clone(), "its checksum does not fit"))
        }
    };
    match (here, blob) {
        (Some(body), None) => check(&Stored::Here(&body)).map(|()| body),
        (None, Some(blob)) => {
            let digest = blob_digest(&blob)
                .ok_or_else(|| Damage::at(place.clone(), "what names its body is no digest"))?;
            check(&Stored::Blob(digest))?;
            let body = tables.blobs.read(&key.tenant, &digest).map_err(|failure| match failure {
                ReadFailure::Absent => Damage::Absent(place.clone()),
                ReadFailure::Failed(error) => Damage::Failed(error.into()),
            })?;
            if Digest::of(&body) == digest {
                Ok(body)
            } else {
                Err(Damage::at(place.clone(), "its body has another digest"))
            }
        }
        _ => Err(Damage::at(place.clone(), "it has no body")),
    }
}

/// The digest in a column `blob`.
pub(crate) fn blob_digest(bytes: &[u8]) -> Option<Digest> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    let hex: String = digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect();
    format!("sha256:{hex}").parse().ok()
}
