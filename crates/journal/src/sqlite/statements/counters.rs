//! The counters of tenants, and the sizes of their data.

use conjure_base::TenantId;
use rusqlite::{OptionalExtension as _, params};

use super::rows::{read_u64, to_i64};
use crate::counter::{CounterIncrement, MAX_COUNT};
use crate::event::ROW_BYTES;
use crate::sqlite::database::error_map::TxError;
use crate::sqlite::statements::transaction::Tx;

impl Tx<'_> {
    /// Increments counters, which start at 0 and stop at the largest count.
    pub(crate) fn increment_counters(
        &self,
        tenant: &TenantId,
        increments: &[CounterIncrement],
    ) -> Result<(), TxError> {
        const SQL: &str = "
            INSERT INTO counters (tenant, name, count) VALUES (?1, ?2, ?3)
            ON CONFLICT DO UPDATE SET count = CASE WHEN count > ?4 - ?3 THEN ?4 ELSE count + ?3 END";
        for increment in increments {
            let (amount, max) = (to_i64(increment.amount), to_i64(MAX_COUNT));
            let row = params![tenant.as_str(), increment.counter.as_ref(), amount, max];
            self.connection.prepare_cached(SQL)?.execute(row)?;
        }
        Ok(())
    }

    pub(crate) fn counters(&self, tenant: &TenantId, names: &[String]) -> Result<Vec<u64>, TxError> {
        const SQL: &str = "SELECT count FROM counters WHERE tenant = ? AND name = ?";
        // One snapshot for all counters. Nothing changes, so dropping the transaction is enough.
        let transaction = self.connection.unchecked_transaction()?;
        let mut statement = transaction.prepare_cached(SQL)?;
        let mut counts = Vec::with_capacity(names.len());
        for name in names {
            let count = statement.query_row(params![tenant.as_str(), name], |row| read_u64(row, 0));
            counts.push(count.optional()?.unwrap_or(0));
        }
        Ok(counts)
    }

    pub(crate) fn stored_bytes(&self, tenant: &TenantId) -> Result<u64, TxError> {
        const SQL: &str = "
            SELECT coalesce(sum(?2 + sessions.bytes + iif(snapshots.session IS NULL, 0, ?2 + coalesce(octet_length(body), 0))), 0)
                + (SELECT coalesce(sum(?2 + octet_length(body)), 0) FROM records WHERE tenant = ?1)
            FROM sessions LEFT JOIN snapshots ON snapshots.session = sessions.id WHERE tenant = ?1";
        let mut statement = self.connection.prepare_cached(SQL)?;
        Ok(statement.query_row(params![tenant.as_str(), to_i64(ROW_BYTES)], |row| read_u64(row, 0))?)
    }

    pub(crate) fn list_counters(&self, tenant: &TenantId) -> Result<Vec<String>, TxError> {
        const SQL: &str = "SELECT name FROM counters WHERE tenant = ? ORDER BY name";
        let mut statement = self.connection.prepare_cached(SQL)?;
        let names = statement.query_map(params![tenant.as_str()], |row| row.get(0))?;
        Ok(names.collect::<Result<_, _>>()?)
    }

    pub(crate) fn delete_counters(&self, tenant: &TenantId, names: &[String]) -> Result<u64, TxError> {
        const SQL: &str = "DELETE FROM counters WHERE tenant = ? AND name = ?";
        let mut statement = self.connection.prepare_cached(SQL)?;
        let mut forgotten = 0;
        for name in names {
            forgotten += statement.execute(params![tenant.as_str(), name])? as u64;
        }
        Ok(forgotten)
    }

    pub(crate) fn session_count(&self, tenant: &TenantId) -> Result<u64, TxError> {
        const SQL: &str = "SELECT count(*) FROM sessions WHERE tenant = ?";
        let mut statement = self.connection.prepare_cached(SQL)?;
        Ok(statement.query_row(params![tenant.as_str()], |row| read_u64(row, 0))?)
    }
}
