//! The counters of tenants, and how much is recorded of them.

use conjure_base::TenantId;
use rusqlite::{OptionalExtension as _, params};

use super::fault::Failure;
use super::rows::{integer, number};
use super::tables::Tables;
use crate::charge::{Charge, LARGEST_COUNT};
use crate::event::ROW_BYTES;

impl Tables<'_> {
    /// Adds to counters, which begin at 0 and stop at the largest count.
    pub(crate) fn charge(&self, tenant: &TenantId, charges: &[Charge]) -> Result<(), Failure> {
        const SQL: &str = "
            INSERT INTO counters (tenant, name, count) VALUES (?1, ?2, ?3)
            ON CONFLICT DO UPDATE SET count = CASE WHEN count > ?4 - ?3 THEN ?4 ELSE count + ?3 END";
        for charge in charges {
            let (amount, most) = (integer(charge.amount), integer(LARGEST_COUNT));
            let row = params![tenant.as_str(), charge.counter.as_ref(), amount, most];
            self.connection.prepare_cached(SQL)?.execute(row)?;
        }
        Ok(())
    }

    pub(crate) fn counters(&self, tenant: &TenantId, names: &[String]) -> Result<Vec<u64>, Failure> {
        const SQL: &str = "SELECT count FROM counters WHERE tenant = ? AND name = ?";
        // One view of all of them; nothing was changed, so it ends by being dropped.
        let transaction = self.connection.unchecked_transaction()?;
        let mut statement = transaction.prepare_cached(SQL)?;
        let mut counts = Vec::with_capacity(names.len());
        for name in names {
            let count = statement.query_row(params![tenant.as_str(), name], |row| number(row, 0));
            counts.push(count.optional()?.unwrap_or(0));
        }
        Ok(counts)
    }

    pub(crate) fn recorded_bytes(&self, tenant: &TenantId) -> Result<u64, Failure> {
        const SQL: &str = "
            SELECT coalesce(sum(?2 + sessions.bytes + iif(snapshots.session IS NULL, 0, ?2 + coalesce(octet_length(body), 0))), 0)
            FROM sessions LEFT JOIN snapshots ON snapshots.session = sessions.id WHERE tenant = ?1";
        let mut statement = self.connection.prepare_cached(SQL)?;
        Ok(statement.query_row(params![tenant.as_str(), integer(ROW_BYTES)], |row| number(row, 0))?)
    }

    pub(crate) fn counter_names(&self, tenant: &TenantId) -> Result<Vec<String>, Failure> {
        const SQL: &str = "SELECT name FROM counters WHERE tenant = ? ORDER BY name";
        let mut statement = self.connection.prepare_cached(SQL)?;
        let names = statement.query_map(params![tenant.as_str()], |row| row.get(0))?;
        Ok(names.collect::<Result<_, _>>()?)
    }

    pub(crate) fn forget_counters(&self, tenant: &TenantId, names: &[String]) -> Result<u64, Failure> {
        const SQL: &str = "DELETE FROM counters WHERE tenant = ? AND name = ?";
        let mut statement = self.connection.prepare_cached(SQL)?;
        let mut forgotten = 0;
        for name in names {
            forgotten += statement.execute(params![tenant.as_str(), name])? as u64;
        }
        Ok(forgotten)
    }

    pub(crate) fn session_count(&self, tenant: &TenantId) -> Result<u64, Failure> {
        const SQL: &str = "SELECT count(*) FROM sessions WHERE tenant = ?";
        let mut statement = self.connection.prepare_cached(SQL)?;
        Ok(statement.query_row(params![tenant.as_str()], |row| number(row, 0))?)
    }
}
