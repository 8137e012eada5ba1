//! Leases in the table of sessions, by the database's clock.

use std::time::Duration;

use conjure_base::Timestamp;
use rusqlite::{OptionalExtension as _, params};

use super::rows::{read_u64, to_i64};
use crate::error::{DamagedPart, JournalError};
use crate::key::{Epoch, SessionKey};
use crate::lease::{Lease, LeaseOwner};
use crate::sqlite::database::error_map::TxError;
use crate::sqlite::statements::transaction::{NOW, Tx, session_bits};

/// The lease columns of a session's row.
struct LeaseRow {
    id: i64,
    epoch: Epoch,
    owner: Option<String>,
    until: u64,
    now: u64,
}

impl Tx<'_> {
    fn lease_row(&self, key: &SessionKey) -> Result<LeaseRow, TxError> {
        let sql = format!(
            "SELECT id, epoch, owner, lease_until, {NOW} FROM sessions WHERE tenant = ? AND session = ?"
        );
        let row = self.connection.prepare_cached(&sql)?.query_row(
            params![key.tenant.as_str(), session_bits(key)],
            |row| {
                Ok(LeaseRow {
                    id: row.get(0)?,
                    epoch: Epoch::from_number(read_u64(row, 1)?),
                    owner: row.get(2)?,
                    until: read_u64(row, 3)?,
                    now: read_u64(row, 4)?,
                })
            },
        );
        row.optional()?.ok_or_else(|| JournalError::NotFound { session: key.clone() }.into())
    }

    pub(crate) fn acquire_lease(
        &self,
        key: &SessionKey,
        owner: &LeaseOwner,
        time: Duration,
    ) -> Result<Lease, TxError> {
        let row = self.lease_row(key)?;
        if let Some(other) = row.owner.as_deref().filter(|other| *other != owner.as_str())
            && row.until > row.now
        {
            let until = Timestamp::from_millis(row.until);
            return Err(JournalError::LeaseHeld { owner: parse_owner(key, other)?, until }.into());
        }
        self.write_lease(row.id, owner.clone(), row.epoch.next(), after(row.now, time))
    }

    pub(crate) fn renew_lease(
        &self,
        key: &SessionKey,
        epoch: Epoch,
        time: Duration,
    ) -> Result<Lease, TxError> {
        let row = self.lease_row(key)?;
        let owner = row.check(epoch)?;
        self.write_lease(row.id, parse_owner(key, owner)?, epoch, after(row.now, time))
    }

    pub(crate) fn release_lease(&self, key: &SessionKey, epoch: Epoch) -> Result<(), TxError> {
        const SQL: &str = "UPDATE sessions SET owner = NULL, lease_until = 0, epoch = ? WHERE id = ?";
        let row = self.lease_row(key)?;
        row.check(epoch)?;
        let next = to_i64(epoch.next().number());
        self.connection.prepare_cached(SQL)?.execute(params![next, row.id])?;
        Ok(())
    }

    fn write_lease(&self, id: i64, owner: LeaseOwner, epoch: Epoch, until: u64) -> Result<Lease, TxError> {
        const SQL: &str = "UPDATE sessions SET owner = ?, lease_until = ?, epoch = ? WHERE id = ?";
        let (stored_until, number) = (to_i64(until), to_i64(epoch.number()));
        self.connection.prepare_cached(SQL)?.execute(params![owner.as_str(), stored_until, number, id])?;
        Ok(Lease { owner, epoch, until: Timestamp::from_millis(until) })
    }
}

impl LeaseRow {
    /// The holder, if this is the epoch of the current lease.
    fn check(&self, epoch: Epoch) -> Result<&str, JournalError> {
        match &self.owner {
            Some(owner) if epoch == self.epoch => Ok(owner),
            _ => Err(JournalError::StaleEpoch { epoch, current: self.epoch }),
        }
    }
}

/// Parses a stored owner.
pub(crate) fn parse_owner(key: &SessionKey, text: &str) -> Result<LeaseOwner, JournalError> {
    LeaseOwner::new(text).map_err(|error| JournalError::Corrupt {
        place: DamagedPart::Lease { session: key.clone() },
        reason: error.to_string(),
    })
}

/// The end of a lease, capped at SQLite's largest integer.
fn after(now: u64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    now.saturating_add(millis).min(i64::MAX.unsigned_abs())
}
