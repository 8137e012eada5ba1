//! What the journal does with its tables, within a transaction that somebody else began.

use std::cell::Cell;
use std::cmp::Ordering;

use rusqlite::{Connection, OptionalExtension as _, named_params, params};

use super::blobs::Blobs;
use super::fault::Failure;
use super::rows::{self, Damage, Stored, checksum, integer, number};
use crate::charge::Charge;
use crate::error::{JournalError, Place};
use crate::event::{EventPage, NewEvent, PageLimit, ROW_BYTES, Recorded};
use crate::key::{Epoch, SessionKey};
use crate::snapshot::Snapshot;

/// The database's clock, in milliseconds since 1970.
pub(crate) const NOW: &str = "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)";

/// The tables as one connection sees them.
pub(crate) struct Tables<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) blobs: &'a Blobs,
    blob_threshold: usize,
    has_deleted: Cell<bool>,
}

/// What of a session decides whether it may be changed.
pub(crate) struct Head {
    /// The number under which its rows are kept.
    pub(crate) id: i64,
    pub(crate) events: u64,
    pub(crate) epoch: Epoch,
}

impl Head {
    pub(crate) fn check_epoch(&self, epoch: Epoch) -> Result<(), JournalError> {
        if epoch == self.epoch {
            Ok(())
        } else {
            Err(JournalError::StaleEpoch { epoch, current: self.epoch })
        }
    }
}

/// The columns that name a session.
pub(crate) fn bits(key: &SessionKey) -> Vec<u8> {
    let text = key.session.to_string();
    let hex = text.trim_start_matches("ses_");
    u128::from_str_radix(hex, 16).unwrap_or_default().to_be_bytes().to_vec()
}

impl<'a> Tables<'a> {
    pub(crate) fn new(connection: &'a Connection, blobs: &'a Blobs, blob_threshold: usize) -> Self {
        Self { connection, blobs, blob_threshold, has_deleted: Cell::new(false) }
    }

    /// Whether something was deleted, so that there may be garbage.
    pub(crate) fn has_deleted(&self) -> bool {
        self.has_deleted.get()
    }

    pub(crate) fn note_deletion(&self) {
        self.has_deleted.set(true);
    }
}

impl Tables<'_> {
    pub(crate) fn head(&self, key: &SessionKey) -> Result<Head, Failure> {
        const SQL: &str = "SELECT id, events, epoch FROM sessions WHERE tenant = ? AND session = ?";
        let mut statement = self.connection.prepare_cached(SQL)?;
        let head = statement.query_row(params![key.tenant.as_str(), bits(key)], |row| {
            Ok(Head { id: row.get(0)?, events: number(row, 1)?, epoch: Epoch::from_number(number(row, 2)?) })
        });
        head.optional()?.ok_or_else(|| JournalError::NotFound { session: key.clone() }.into())
    }

    pub(crate) fn create(&self, key: &SessionKey) -> Result<(), Failure> {
        let sql = format!(
            "INSERT INTO sessions (tenant, session, events, epoch, lease_until, created, updated)
             VALUES (?, ?, 0, 0, 0, {NOW}, {NOW}) ON CONFLICT DO NOTHING"
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        match statement.execute(params![key.tenant.as_str(), bits(key)])? {
            0 => Err(JournalError::Exists { session: key.clone() }.into()),
            _ => Ok(()),
        }
    }

    pub(crate) fn append(
        &self,
        key: &SessionKey,
        expected: u64,
        epoch: Epoch,
        events: &[NewEvent],
        charges: &[Charge],
    ) -> Result<u64, Failure> {
        let head = self.head(key)?;
        head.check_epoch(epoch)?;
        if head.events != expected {
            return Err(JournalError::Conflict { expected, found: head.events }.into());
        }
        if events.is_empty() {
            return Ok(expected);
        }
        // Before the first row, so that a store that refuses leaves nothing to undo.
        let stored =
            events.iter().map(|event| self.store(key, &event.body)).collect::<Result<Vec<_>, _>>()?;
        for ((seq, event), stored) in (expected..).zip(events).zip(&stored) {
            self.insert_event(key, head.id, epoch, seq, event, stored)?;
        }
        let total = expected + events.len() as u64;
        let sql = format!("UPDATE sessions SET events = ?, bytes = bytes + ?, updated = {NOW} WHERE id = ?");
        let bytes = events.iter().zip(&stored).map(|(event, stored)| row_bytes(event, stored)).sum();
        self.connection.prepare_cached(&sql)?.execute(params![integer(total), integer(bytes), head.id])?;
        self.charge(&key.tenant, charges)?;
        Ok(total)
    }

    fn insert_event(
        &self,
        key: &SessionKey,
        id: i64,
        epoch: Epoch,
        seq: u64,
        event: &NewEvent,
        stored: &Stored<'_>,
    ) -> Result<(), Failure> {
        const SQL: &str = "
            INSERT INTO events (session, seq, epoch, kind, version, body, blob, checksum)
            VALUES (:session, :seq, :epoch, :kind, :version, :body, :blob, :checksum)";
        let numbers = [seq, epoch.number(), u64::from(event.version)];
        self.connection.prepare_cached(SQL)?.execute(named_params! {
            ":session": id,
            ":seq": integer(seq),
            ":epoch": integer(epoch.number()),
            ":kind": event.kind.as_ref(),
            ":version": event.version,
            ":body": stored.body(),
            ":blob": stored.blob(),
            ":checksum": checksum(key, numbers, &event.kind, stored),
        })?;
        Ok(())
    }

    /// Decides where a body goes, and puts a large one there.
    fn store<'b>(&self, key: &SessionKey, body: &'b [u8]) -> Result<Stored<'b>, JournalError> {
        if body.len() <= self.blob_threshold {
            return Ok(Stored::Here(body));
        }
        self.blobs.insert(&key.tenant, body).map(Stored::Blob)
    }

    pub(crate) fn load(&self, key: &SessionKey, from: u64, limit: PageLimit) -> Result<EventPage, Failure> {
        again_if_absent(|| self.load_once(key, from, limit))
    }

    fn load_once(&self, key: &SessionKey, from: u64, limit: PageLimit) -> Result<EventPage, Damage> {
        const SQL: &str = "
            SELECT seq, epoch, kind, version, body, blob, checksum FROM events
            WHERE session = ? AND seq >= ? ORDER BY seq LIMIT ?";
        // One view of both tables; nothing was changed, so it ends by being dropped.
        let transaction = self.connection.unchecked_transaction()?;
        let head = self.head(key).map_err(Damage::Failed)?;
        let mut events: Vec<Recorded> = Vec::new();
        let mut bytes = 0_usize;
        self.check_end(key, &head)?;
        let mut statement = transaction.prepare_cached(SQL)?;
        let mut found = statement.query(params![head.id, integer(from), limit.events.max(1)])?;
        while let Some(row) = found.next()? {
            let event = rows::event(self, key, row)?;
            bytes = bytes.saturating_add(event.body.len());
            if bytes > limit.bytes && !events.is_empty() {
                return Ok(EventPage { events, total: head.events });
            }
            self.check_place(key, from, &events, event.seq)?;
            events.push(event);
        }
        if (events.len() as u64) < u64::from(limit.events.max(1)) && from < head.events {
            self.check_place(key, from, &events, head.events)?;
        }
        Ok(EventPage { events, total: head.events })
    }

    /// The session holds its last event and none after it.
    fn check_end(&self, key: &SessionKey, head: &Head) -> Result<(), Damage> {
        const SQL: &str = "SELECT max(seq) FROM events WHERE session = ?";
        let last: Option<i64> =
            self.connection.prepare_cached(SQL)?.query_row(params![head.id], |row| row.get(0))?;
        let found = last.map_or(0, |last| u64::try_from(last).unwrap_or(0) + 1);
        self.check_place(key, found, &[], head.events)
    }

    /// The event at `seq` comes right after those that were read.
    fn check_place(&self, key: &SessionKey, from: u64, events: &[Recorded], seq: u64) -> Result<(), Damage> {
        let expected = events.last().map_or(from, |last| last.seq + 1);
        let reason = match seq.cmp(&expected) {
            Ordering::Equal => return Ok(()),
            Ordering::Greater => "it was recorded and is missing",
            Ordering::Less => "it is there, and was not recorded",
        };
        let place = Place::Event { session: key.clone(), seq: expected.min(seq) };
        Err(Damage::Failed(JournalError::Corrupt { place, reason: reason.to_owned() }.into()))
    }

    pub(crate) fn save_snapshot(
        &self,
        key: &SessionKey,
        epoch: Epoch,
        snapshot: &Snapshot,
    ) -> Result<(), Failure> {
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
            ":seq": integer(snapshot.seq),
            ":version": snapshot.version,
            ":body": stored.body(),
            ":blob": stored.blob(),
            ":checksum": checksum(key, numbers, "", &stored),
        })?;
        Ok(())
    }

    pub(crate) fn snapshot(&self, key: &SessionKey) -> Result<Option<Snapshot>, Failure> {
        again_if_absent(|| self.snapshot_once(key))
    }

    fn snapshot_once(&self, key: &SessionKey) -> Result<Option<Snapshot>, Damage> {
        const SQL: &str = "SELECT seq, version, body, blob, checksum FROM snapshots WHERE session = ?";
        let transaction = self.connection.unchecked_transaction()?;
        let head = self.head(key).map_err(Damage::Failed)?;
        let mut statement = transaction.prepare_cached(SQL)?;
        let mut found = statement.query(params![head.id])?;
        found.next()?.map(|row| rows::snapshot(self, key, row)).transpose()
    }
}

/// What an event takes of the database, about: what format 3 counts of old ones.
fn row_bytes(event: &NewEvent, stored: &Stored<'_>) -> u64 {
    ROW_BYTES + (event.kind.len() + stored.body().map_or(0, <[u8]>::len)) as u64
}

/// A body that is not there may have been collected since its row was read, because the row is gone: then a second look
/// does not find it. A row that is still there is damaged.
fn again_if_absent<T>(mut read: impl FnMut() -> Result<T, Damage>) -> Result<T, Failure> {
    let first = match read() {
        Err(Damage::Absent(_)) => read(),
        other => other,
    };
    first.map_err(|damage| match damage {
        Damage::Absent(place) => {
            JournalError::Corrupt { place, reason: "its body is missing".to_owned() }.into()
        }
        Damage::Failed(failure) => failure,
    })
}
