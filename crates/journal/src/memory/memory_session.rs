//! One session of the journal in memory.

use std::ops::RangeBounds as _;
use std::time::Duration;

use conjure_base::{SessionId, Timestamp};

use crate::error::JournalError;
use crate::event::{EventPage, NewEvent, PageLimit, ROW_BYTES, RecordedEvent};
use crate::key::Epoch;
use crate::lease::{Lease, LeaseOwner};
use crate::record::Direction;
use crate::session::{SessionInfo, Snapshot};
use crate::session_query::SessionQuery;
use crate::session_row::SessionRow;

pub(super) struct MemorySession {
    pub(super) number: u64,
    pub(super) events: Vec<RecordedEvent>,
    pub(super) epoch: Epoch,
    pub(super) lease: Option<Lease>,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
    pub(super) row: Option<SessionRow>,
}

impl MemorySession {
    pub(super) fn total(&self) -> u64 {
        self.events.len() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        let event = |event: &RecordedEvent| ROW_BYTES + (event.kind.len() + event.body.len()) as u64;
        let snapshot = self.snapshot.as_ref().map_or(0, |snapshot| ROW_BYTES + snapshot.body.len() as u64);
        ROW_BYTES + self.events.iter().map(event).sum::<u64>() + snapshot
    }

    pub(super) fn check_epoch(&self, epoch: Epoch) -> Result<(), JournalError> {
        if epoch == self.epoch {
            Ok(())
        } else {
            Err(JournalError::StaleEpoch { epoch, current: self.epoch })
        }
    }

    /// The lease, when this is its epoch.
    pub(super) fn lease(&mut self, epoch: Epoch) -> Result<&mut Lease, JournalError> {
        self.check_epoch(epoch)?;
        let current = self.epoch;
        self.lease.as_mut().ok_or(JournalError::StaleEpoch { epoch, current })
    }

    pub(super) fn append(
        &mut self,
        expected: u64,
        epoch: Epoch,
        events: Vec<NewEvent>,
        row: Option<SessionRow>,
        now: Timestamp,
    ) -> Result<u64, JournalError> {
        self.check_epoch(epoch)?;
        let found = self.total();
        if found != expected {
            return Err(JournalError::Conflict { expected, found });
        }
        if !events.is_empty() {
            self.updated = now;
        }
        if !events.is_empty() || row.is_some() {
            self.row = row;
        }
        let recorded = events.into_iter().zip(found..).map(|(event, seq)| {
            let NewEvent { kind, version, body } = event;
            RecordedEvent { seq, epoch, kind: kind.into_owned(), version, body }
        });
        self.events.extend(recorded);
        Ok(self.total())
    }

    pub(super) fn page(&self, from: u64, limit: PageLimit) -> EventPage {
        let mut events: Vec<RecordedEvent> = Vec::new();
        let mut bytes = 0_usize;
        let skipped = usize::try_from(from).unwrap_or(usize::MAX);
        for event in self.events.iter().skip(skipped) {
            bytes = bytes.saturating_add(event.body.len());
            let is_full = events.len() as u64 >= u64::from(limit.events) || bytes > limit.bytes;
            if is_full && !events.is_empty() {
                break;
            }
            events.push(event.clone());
        }
        EventPage { events, total: self.total() }
    }

    pub(super) fn acquire(
        &mut self,
        owner: &LeaseOwner,
        now: Timestamp,
        time: Duration,
    ) -> Result<Lease, JournalError> {
        if let Some(lease) = self.lease.as_ref().filter(|lease| lease.owner != *owner && lease.until > now) {
            return Err(JournalError::LeaseHeld { owner: lease.owner.clone(), until: lease.until });
        }
        self.epoch = self.epoch.next();
        let lease = Lease { owner: owner.clone(), epoch: self.epoch, until: after(now, time) };
        self.lease = Some(lease.clone());
        Ok(lease)
    }

    pub(super) fn release(&mut self, epoch: Epoch) -> Result<(), JournalError> {
        self.lease(epoch)?;
        self.lease = None;
        self.epoch = self.epoch.next();
        Ok(())
    }

    pub(super) fn save_snapshot(&mut self, epoch: Epoch, snapshot: Snapshot) -> Result<(), JournalError> {
        self.check_epoch(epoch)?;
        if snapshot.seq > self.total() {
            return Err(JournalError::Conflict { expected: snapshot.seq, found: self.total() });
        }
        if self.snapshot.as_ref().is_none_or(|last| last.seq <= snapshot.seq) {
            self.snapshot = Some(snapshot);
        }
        Ok(())
    }

    pub(super) fn matches(&self, query: &SessionQuery) -> bool {
        let status = self.row.as_ref().map(|row| row.status);
        let is_after_cursor = query.after.is_none_or(|after| match query.direction {
            Direction::Ascending => self.number > after.number(),
            Direction::Descending => self.number < after.number(),
        });
        is_after_cursor
            && query.created.contains(&self.created)
            && query.updated.contains(&self.updated)
            && (query.statuses.is_empty() || status.is_some_and(|status| query.statuses.contains(&status)))
    }

    pub(super) fn info(&self, session: SessionId) -> SessionInfo {
        SessionInfo {
            session,
            events: self.total(),
            epoch: self.epoch,
            lease: self.lease.clone(),
            snapshot: self.snapshot.as_ref().map(|snapshot| snapshot.seq),
            created: self.created,
            updated: self.updated,
            row: self.row.clone(),
        }
    }
}

pub(super) fn after(now: Timestamp, time: Duration) -> Timestamp {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Timestamp::from_millis(now.millis().saturating_add(millis))
}
