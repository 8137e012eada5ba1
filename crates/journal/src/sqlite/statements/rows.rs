//! Events and snapshots as rows: their body reference and their checksum.
//! SQLite has checksums for the pages of the WAL, but not of the database file. So each row has a checksum of all its columns: the first
//! eight bytes of a SHA-256.

use conjure_base::{Digest, DigestHasher};
use rusqlite::Row;

use super::blobs::{BlobReadError, BlobStores};
use crate::error::{DamagedPart, JournalError};
use crate::event::RecordedEvent;
use crate::key::{Epoch, SessionKey};
use crate::session::Snapshot;
use crate::session_row::{RowStatus, SessionRow};
use crate::sqlite::database::error_map::TxError;

/// An inline body, or the digest of a body in the store.
pub(crate) enum BodyRef<'a> {
    Inline(&'a [u8]),
    Blob(Digest),
}

impl BodyRef<'_> {
    /// The value of the column `body`.
    pub(crate) const fn body(&self) -> Option<&[u8]> {
        match self {
            Self::Inline(body) => Some(body),
            Self::Blob(_) => None,
        }
    }

    /// The value of the column `blob`.
    pub(crate) fn blob(&self) -> Option<&[u8]> {
        match self {
            Self::Inline(_) => None,
            Self::Blob(digest) => Some(digest.as_bytes().as_slice()),
        }
    }
}

/// The checksum of a row with these numbers, kind and body. Each part has a constant length or is preceded by its length.
pub(crate) fn checksum(key: &SessionKey, numbers: [u64; 3], kind: &str, stored: &BodyRef<'_>) -> i64 {
    let mut hasher = DigestHasher::new();
    hasher.update(key.session.stored_name().as_bytes());
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(&(kind.len() as u64).to_le_bytes());
    hasher.update(kind.as_bytes());
    match stored {
        BodyRef::Inline(body) => {
            hasher.update(b"here");
            hasher.update(body);
        }
        BodyRef::Blob(digest) => {
            hasher.update(b"blob");
            hasher.update(digest.as_bytes());
        }
    }
    let digest = hasher.finish();
    let (first, _) = digest.as_bytes().split_at(8);
    i64::from_le_bytes(first.try_into().unwrap_or_default())
}

/// The value of the column `status`.
pub(crate) const fn status_number(status: RowStatus) -> i64 {
    match status {
        RowStatus::Idle => 0,
        RowStatus::Running => 1,
        RowStatus::AwaitingAction => 2,
    }
}

/// The checksum of a session's row.
pub(crate) fn row_checksum(key: &SessionKey, row: &SessionRow) -> i64 {
    let numbers = [status_number(row.status).unsigned_abs(), 0, u64::from(row.version)];
    checksum(key, numbers, "row", &BodyRef::Inline(&row.body))
}

/// Reads the row from the columns `status, row_version, row, row_checksum`, the first of which is `column`. A damaged row is
/// ignored, because the events hold the same facts.
pub(crate) fn session_row(
    key: &SessionKey,
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<Option<SessionRow>> {
    let (status, version): (Option<i64>, Option<u32>) = (row.get(column)?, row.get(column + 1)?);
    let status = [RowStatus::Idle, RowStatus::Running, RowStatus::AwaitingAction]
        .into_iter()
        .find(|known| status == Some(status_number(*known)));
    let (body, checksum): (Option<Vec<u8>>, Option<i64>) = (row.get(column + 2)?, row.get(column + 3)?);
    let (Some(status), Some(version), Some(body)) = (status, version, body) else { return Ok(None) };
    let found = SessionRow { status, version, body };
    if checksum != Some(row_checksum(key, &found)) {
        tracing::warn!(session = %key, "the row of a session is damaged; it is made again from the events");
        return Ok(None);
    }
    Ok(Some(found))
}

/// Reads an integer column without negative numbers.
pub(crate) fn read_u64(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

/// Converts a number for SQLite. All numbers of this crate fit.
pub(crate) fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Why a row cannot be read.
pub(crate) enum RowError {
    /// The body is not in the store. It may have been deleted, so the row must be read again.
    Missing(DamagedPart),
    Corrupt(TxError),
}

impl From<rusqlite::Error> for RowError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Corrupt(error.into())
    }
}

impl RowError {
    fn corrupt(place: DamagedPart, reason: &str) -> Self {
        Self::Corrupt(JournalError::Corrupt { place, reason: reason.to_owned() }.into())
    }
}

/// The columns of an event: `seq, epoch, kind, version, body, blob, checksum`.
pub(crate) fn event(blobs: &BlobStores, key: &SessionKey, row: &Row<'_>) -> Result<RecordedEvent, RowError> {
    let seq = read_u64(row, 0)?;
    let place = DamagedPart::Event { session: key.clone(), seq };
    let epoch = read_u64(row, 1)?;
    let kind: String = row.get(2)?;
    let version = read_u64(row, 3)?;
    let body = body(blobs, key, row, 4, [seq, epoch, version], &kind, &place)?;
    let version =
        u32::try_from(version).map_err(|_| RowError::corrupt(place, "its version is out of range"))?;
    Ok(RecordedEvent { seq, epoch: Epoch::from_number(epoch), kind, version, body })
}

/// The columns of a snapshot: `seq, version, body, blob, checksum`.
pub(crate) fn snapshot(blobs: &BlobStores, key: &SessionKey, row: &Row<'_>) -> Result<Snapshot, RowError> {
    let place = DamagedPart::Snapshot { session: key.clone() };
    let seq = read_u64(row, 0)?;
    let version = read_u64(row, 1)?;
    let body = body(blobs, key, row, 2, [seq, 0, version], "", &place)?;
    let version =
        u32::try_from(version).map_err(|_| RowError::corrupt(place, "its version is out of range"))?;
    Ok(Snapshot { seq, version, body })
}

/// The body from the columns `body, blob, checksum`, the first of which is `column`.
fn body(
    blobs: &BlobStores,
    key: &SessionKey,
    row: &Row<'_>,
    column: usize,
    numbers: [u64; 3],
    kind: &str,
    place: &DamagedPart,
) -> Result<Vec<u8>, RowError> {
    let expected: i64 = row.get(column + 2)?;
    let here: Option<Vec<u8>> = row.get(column)?;
    let blob: Option<Vec<u8>> = row.get(column + 1)?;
    let check = |stored: &BodyRef<'_>| {
        if checksum(key, numbers, kind, stored) == expected {
            Ok(())
        } else {
            Err(RowError::corrupt(place.clone(), "its checksum does not fit"))
        }
    };
    match (here, blob) {
        (Some(body), None) => check(&BodyRef::Inline(&body)).map(|()| body),
        (None, Some(blob)) => {
            let digest = blob_digest(&blob).ok_or_else(|| {
                RowError::corrupt(place.clone(), "the reference to its body is not a digest")
            })?;
            check(&BodyRef::Blob(digest))?;
            let body = blobs.read(&key.tenant, &digest).map_err(|failure| match failure {
                BlobReadError::Missing => RowError::Missing(place.clone()),
                BlobReadError::Failed(error) => RowError::Corrupt(error.into()),
            })?;
            if Digest::of_bytes(&body) == digest {
                Ok(body)
            } else {
                Err(RowError::corrupt(place.clone(), "its body has another digest"))
            }
        }
        _ => Err(RowError::corrupt(place.clone(), "it has no body")),
    }
}

/// The digest in a column `blob`.
pub(crate) fn blob_digest(bytes: &[u8]) -> Option<Digest> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    let hex: String = digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect();
    format!("sha256:{hex}").parse().ok()
}
