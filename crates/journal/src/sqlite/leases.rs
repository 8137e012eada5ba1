//! Leases in the table of sessions, by the database's clock.

use std::time::Duration;

use conjure_base::Timestamp;
use rusqlite::{OptionalExtension as _, params};

use super::fault::Failure;
use super::rows::{integer, number};
use super::tables::{NOW, Tables, bits};
use crate::error::{JournalError, Place};
use crate::key::{Epoch, SessionKey};
use crate::lease::{Lease, Owner};

/// A session's lease as it is now.
struct Held {
    id: i64,
    epoch: Epoch,
    owner: Option<String>,
    until: u64,
    now: u64,
}

impl Tables<'_> {
    fn held(&self, key: &SessionKey) -> Result<Held, Failure> {
        let sql = format!(
            "SELECT id, epoch, owner, lease_until, {NOW} FROM sessions WHERE tenant = ? AND session = ?"
        );
        let held =
            self.connection.prepare_cached(&sql)?.query_row(params![key.tenant.as_str(), bits(key)], |row| {
                Ok(Held {
                    id: row.get(0)?,
                    epoch: Epoch::from_number(number(row, 1)?),
                    owner: row.get(2)?,
                    until: number(row, 3)?,
                    now: number(row, 4)?,
                })
            });
        held.optional()?.ok_or_else(|| JournalError::NotFound { session: key.clone() }.into())
    }

    pub(crate) fn acquire(&self, key: &SessionKey, owner: &Owner, time: Duration) -> Result<Lease, Failure> {
        let held = self.held(key)?;
        if let Some(other) = held.owner.as_deref().filter(|other| *other != owner.as_str())
            && held.until > held.now
        {
            let until = Timestamp::from_millis(held.until);
            return Err(JournalError::LeaseHeld { owner: read_owner(key, other)?, until }.into());
        }
        self.write_lease(held.id, owner.clone(), held.epoch.next(), after(held.now, time))
    }

    pub(crate) fn renew(&self, key: &SessionKey, epoch: Epoch, time: Duration) -> Result<Lease, Failure> {
        let held = self.held(key)?;
        let owner = held.check(epoch)?;
        self.write_lease(held.id, read_owner(key, owner)?, epoch, after(held.now, time))
    }

    pub(crate) fn release(&self, key: &SessionKey, epoch: Epoch) -> Result<(), Failure> {
        const SQL: &str = "UPDATE sessions SET owner = NULL, lease_until = 0, epoch = ? WHERE id = ?";
        let held = self.held(key)?;
        held.check(epoch)?;
        let next = integer(epoch.next().number());
        self.connection.prepare_cached(SQL)?.execute(params![next, held.id])?;
        Ok(())
    }

    fn write_lease(&self, id: i64, owner: Owner, epoch: Epoch, until: u64) -> Result<Lease, Failure> {
        const SQL: &str = "UPDATE sessions SET owner = ?, lease_until = ?, epoch = ? WHERE id = ?";
        let (stored_until, number) = (integer(until), integer(epoch.number()));
        self.connection.prepare_cached(SQL)?.execute(params![owner.as_str(), stored_until, number, id])?;
        Ok(Lease { owner, epoch, until: Timestamp::from_millis(until) })
    }
}

impl Held {
    /// The holder, when this is the epoch of a lease.
    fn check(&self, epoch: Epoch) -> Result<&str, JournalError> {
        match &self.owner {
            Some(owner) if epoch == self.epoch => Ok(owner),
            _ => Err(JournalError::StaleEpoch { epoch, current: self.epoch }),
        }
    }
}

/// An owner as it was kept.
pub(crate) fn read_owner(key: &SessionKey, text: &str) -> Result<Owner, JournalError> {
    Owner::new(text).map_err(|error| JournalError::Corrupt {
        place: Place::Lease { session: key.clone() },
        reason: error.to_string(),
    })
}

/// The end of a lease, which SQLite can keep.
fn after(now: u64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    now.saturating_add(millis).min(i64::MAX.unsigned_abs())
}
