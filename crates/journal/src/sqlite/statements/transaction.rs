//! [`Tx`]: a transaction of the database, and the SQL of events and sessions. The caller began the transaction.

use std::cell::Cell;
use std::cmp::Ordering;

use rusqlite::{Connection, OptionalExtension as _, named_params, params};

use crate::error::{DamagedPart, JournalError};
use crate::event::{EventPage, NewEvent, PageLimit, ROW_BYTES, RecordedEvent};
use crate::key::{Epoch, SessionKey};
use crate::session::Snapshot;
use crate::session_row::{AppendBatch, SessionRow};
use crate::sqlite::database::error_map::TxError;
use crate::sqlite::statements::blobs::BlobStores;
use crate::sqlite::statements::rows::{
    self, BodyRef, RowError, checksum, read_u64, row_checksum, status_number, to_i64,
};

/// The database's clock, in milliseconds since 1970.
pub(crate) const NOW: &str = "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)";

/// A transaction on the journal's tables.
pub(crate) struct Tx<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) blobs: &'a BlobStores,
    blob_threshold: usize,
    has_deleted: Cell<bool>,
}

/// The columns of a session that every change checks.
pub(crate) struct SessionHead {
    /// The row id of the session.
    pub(crate) id: i64,
    pub(crate) events: u64,
    pub(crate) epoch: Epoch,
}

impl SessionHead {
    pub(crate) fn check_epoch(&self, epoch: Epoch) -> Result<(), JournalError> {
        if epoch == self.epoch {
            Ok(())
        } else {
            Err(JournalError::StaleEpoch { epoch, current: self.epoch })
        }
    }
}

/// The value of the column `session`.
pub(crate) fn session_bits(key: &SessionKey) -> Vec<u8> {
    let text = key.session.stored_name();
    let hex = text.trim_start_matches("ses_");
    u128::from_str_radix(hex, 16).unwrap_or_default().to_be_bytes().to_vec()
}

impl<'a> Tx<'a> {
    pub(crate) fn new(connection: &'a Connection, blobs: &'a BlobStores, blob_threshold: usize) -> Self {
        Self { connection, blobs, blob_threshold, has_deleted: Cell::new(false) }
    }

    /// Whether the transaction deleted something, so that there may be garbage.
    pub(crate) fn has_deleted(&self) -> bool {
        self.has_deleted.get()
    }

    pub(crate) fn record_deletion(&self) {
        self.has_deleted.set(true);
    }
}

impl Tx<'_> {
    pub(crate) fn head(&self, key: &SessionKey) -> Result<SessionHead, TxError> {
        const SQL: &str = "SELECT id, events, epoch FROM sessions WHERE tenant = ? AND session = ?";
        let mut statement = self.connection.prepare_cached(SQL)?;
        let head = statement.query_row(params![key.tenant.as_str(), session_bits(key)], |row| {
            Ok(SessionHead {
                id: row.get(0)?,
                events: read_u64(row, 1)?,
                epoch: Epoch::from_number(read_u64(row, 2)?),
            })
        });
        head.optional()?.ok_or_else(|| JournalError::NotFound { session: key.clone() }.into())
    }

    pub(crate) fn create(&self, key: &SessionKey) -> Result<(), TxError> {
        // A clock that jumps back must not change the order of the sessions.
        let sql = format!(
            "INSERT INTO sessions (tenant, session, events, epoch, lease_until, created, updated)
             SELECT ?1, ?2, 0, 0, 0, now, now FROM (SELECT max({NOW}, coalesce(
                 (SELECT created FROM sessions WHERE tenant = ?1 ORDER BY id DESC LIMIT 1), 0)) AS now)
             WHERE true ON CONFLICT DO NOTHING"
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        match statement.execute(params![key.tenant.as_str(), session_bits(key)])? {
            0 => Err(JournalError::Exists { session: key.clone() }.into()),
            _ => Ok(()),
        }
    }

    pub(crate) fn append(
        &self,
        key: &SessionKey,
        expected: u64,
        epoch: Epoch,
        batch: &AppendBatch,
    ) -> Result<u64, TxError> {
        let AppendBatch { events, increments, row } = batch;
        let head = self.head(key)?;
        head.check_epoch(epoch)?;
        if head.events != expected {
            return Err(JournalError::Conflict { expected, found: head.events }.into());
        }
        if events.is_empty() {
            if let Some(row) = row {
                self.save_row(key, head.id, row)?;
            }
            return Ok(expected);
        }
        // Bodies are stored before the first row, so a failure of the store leaves nothing to roll back.
        let stored =
            events.iter().map(|event| self.store(key, &event.body)).collect::<Result<Vec<_>, _>>()?;
        for ((seq, event), stored) in (expected..).zip(events).zip(&stored) {
            self.insert_event(key, head.id, epoch, seq, event, stored)?;
        }
        let total = expected + events.len() as u64;
        let sql = format!(
            "UPDATE sessions SET events = ?, bytes = bytes + ?, updated = {NOW}, status = ?, row_version = ?, row = ?,
                row_checksum = ?
             WHERE id = ?"
        );
        let bytes = events.iter().zip(&stored).map(|(event, stored)| row_bytes(event, stored)).sum();
        let row = row.as_ref();
        self.connection.prepare_cached(&sql)?.execute(params![
            to_i64(total),
            to_i64(bytes),
            row.map(|row| status_number(row.status)),
            row.map(|row| row.version),
            row.map(|row| &row.body),
            row.map(|row| row_checksum(key, row)),
            head.id
        ])?;
        self.increment_counters(&key.tenant, increments)?;
        Ok(total)
    }

    /// Stores the row of a session whose events stay as they are.
    fn save_row(&self, key: &SessionKey, id: i64, row: &SessionRow) -> Result<(), TxError> {
        const SQL: &str =
            "UPDATE sessions SET status = ?, row_version = ?, row = ?, row_checksum = ? WHERE id = ?";
        let (status, checksum) = (status_number(row.status), row_checksum(key, row));
        self.connection.prepare_cached(SQL)?.execute(params![status, row.version, row.body, checksum, id])?;
        Ok(())
    }

    fn insert_event(
        &self,
        key: &SessionKey,
        id: i64,
        epoch: Epoch,
        seq: u64,
        event: &NewEvent,
        stored: &BodyRef<'_>,
    ) -> Result<(), TxError> {
        const SQL: &str = "
            INSERT INTO events (session, seq, epoch, kind, version, body, blob, checksum)
            VALUES (:session, :seq, :epoch, :kind, :version, :body, :blob, :checksum)";
        let numbers = [seq, epoch.number(), u64::from(event.version)];
        self.connection.prepare_cached(SQL)?.execute(named_params! {
            ":session": id,
            ":seq": to_i64(seq),
            ":epoch": to_i64(epoch.number()),
            ":kind": event.kind.as_ref(),
            ":version": event.version,
            ":body": stored.body(),
            ":blob": stored.blob(),
            ":checksum": checksum(key, numbers, &event.kind, stored),
        })?;
        Ok(())
    }

    /// Stores a large body, and returns the reference.
    fn store<'b>(&self, key: &SessionKey, body: &'b [u8]) -> Result<BodyRef<'b>, JournalError> {
        if body.len() <= self.blob_threshold {
            return Ok(BodyRef::Inline(body));
        }
        self.blobs.insert(&key.tenant, body).map(BodyRef::Blob)
    }

    pub(crate) fn read_events(
        &self,
        key: &SessionKey,
        from: u64,
        limit: PageLimit,
    ) -> Result<EventPage, TxError> {
        retry_if_missing(|| self.read_events_once(key, from, limit))
    }

    fn read_events_once(&self, key: &SessionKey, from: u64, limit: PageLimit) -> Result<EventPage, RowError> {
        const SQL: &str = "
            SELECT seq, epoch, kind, version, body, blob, checksum FROM events
            WHERE session = ? AND seq >= ? ORDER BY seq LIMIT ?";
        // One snapshot of both tables. Nothing changes, so dropping the transaction is enough.
        let transaction = self.connection.unchecked_transaction()?;
        let head = self.head(key).map_err(RowError::Corrupt)?;
        let mut events: Vec<RecordedEvent> = Vec::new();
        let mut bytes = 0_usize;
        self.check_last_event(key, &head)?;
        let mut statement = transaction.prepare_cached(SQL)?;
        let mut found = statement.query(params![head.id, to_i64(from), limit.events.max(1)])?;
        while let Some(row) = found.next()? {
            let event = rows::event(self.blobs, key, row)?;
            bytes = bytes.saturating_add(event.body.len());
            if bytes > limit.bytes && !events.is_empty() {
                return Ok(EventPage { events, total: head.events });
            }
            self.check_next_seq(key, from, &events, event.seq)?;
            events.push(event);
        }
        if (events.len() as u64) < u64::from(limit.events.max(1)) && from < head.events {
            self.check_next_seq(key, from, &events, head.events)?;
        }
        Ok(EventPage { events, total: head.events })
    }

    /// Checks that the session has its last event and none after it.
    fn check_last_event(&self, key: &SessionKey, head: &SessionHead) -> Result<(), RowError> {
        const SQL: &str = "SELECT max(seq) FROM events WHERE session = ?";
        let last: Option<i64> =
            self.connection.prepare_cached(SQL)?.query_row(params![head.id], |row| row.get(0))?;
        let found = last.map_or(0, |last| u64::try_from(last).unwrap_or(0) + 1);
        self.check_next_seq(key, found, &[], head.events)
    }

    /// Checks that the event at `seq` follows those that were read.
    fn check_next_seq(
        &self,
        key: &SessionKey,
        from: u64,
        events: &[RecordedEvent],
        seq: u64,
    ) -> Result<(), RowError> {
        let expected = events.last().map_or(from, |last| last.seq + 1);
        let reason = match seq.cmp(&expected) {
            Ordering::Equal => return Ok(()),
            Ordering::Greater => "it was recorded and is missing",
            Ordering::Less => "it exists, but was not recorded",
        };
        let place = DamagedPart::Event { session: key.clone(), seq: expected.min(seq) };
        Err(RowError::Corrupt(JournalError::Corrupt { place, reason: reason.to_owned() }.into()))
    }

    pub(crate) fn save_snapshot(
        &self,
        key: &SessionKey,
        epoch: Epoch,
        snapshot: &Snapshot,
    ) -> Result<(), TxError> {
        const SQL: &str = "
            INSERT INTO snapshots (session, seq, version, body, blob, checksum)
            VALUES (:session, :seq, :version, :body, :blob, :checksum)
            ON CONFLICT DO UPDATE SET seq = excluded.seq, version = excluded.version, body = excluded.body,
                blob = excluded.blob, checksum = excluded.checksum
            WHERE excluded.seq >= seq";
        let head = self.head(key)?;
        head.check_epoch(epoch)?;
        if snapshot.seq > head.events {
            return Err(JournalError::Conflict { expected: snapshot.seq, found: head.events }.into());
        }
        let stored = self.store(key, &snapshot.body)?;
        let numbers = [snapshot.seq, 0, u64::from(snapshot.version)];
        self.connection.prepare_cached(SQL)?.execute(named_params! {
            ":session": head.id,
            ":seq": to_i64(snapshot.seq),
            ":version": snapshot.version,
            ":body": stored.body(),
            ":blob": stored.blob(),
            ":checksum": checksum(key, numbers, "", &stored),
        })?;
        Ok(())
    }

    pub(crate) fn snapshot(&self, key: &SessionKey) -> Result<Option<Snapshot>, TxError> {
        retry_if_missing(|| self.read_snapshot_once(key))
    }

    fn read_snapshot_once(&self, key: &SessionKey) -> Result<Option<Snapshot>, RowError> {
        const SQL: &str = "SELECT seq, version, body, blob, checksum FROM snapshots WHERE session = ?";
        let transaction = self.connection.unchecked_transaction()?;
        let head = self.head(key).map_err(RowError::Corrupt)?;
        let mut statement = transaction.prepare_cached(SQL)?;
        let mut found = statement.query(params![head.id])?;
        found.next()?.map(|row| rows::snapshot(self.blobs, key, row)).transpose()
    }
}

/// The approximate size of an event in the database, equal to that of format 3's migration.
fn row_bytes(event: &NewEvent, stored: &BodyRef<'_>) -> u64 {
    ROW_BYTES + (event.kind.len() + stored.body().map_or(0, <[u8]>::len)) as u64
}

/// Repeats a read whose body is missing. The body may have been collected because its row was deleted; then the second read does not find
/// the row. If the row still exists, it is damaged.
fn retry_if_missing<T>(mut read: impl FnMut() -> Result<T, RowError>) -> Result<T, TxError> {
    let first = match read() {
        Err(RowError::Missing(_)) => read(),
        other => other,
    };
    first.map_err(|damage| match damage {
        RowError::Missing(place) => {
            JournalError::Corrupt { place, reason: "its body is missing".to_owned() }.into()
        }
        RowError::Corrupt(failure) => failure,
    })
}
