//! The counters of tenants.

use conjure_base::TenantId;
use rusqlite::{OptionalExtension as _, params};

use super::fault::Failure;
use super::rows::{integer, number};
use super::tables::Tables;
use crate::charge::{Charge, LARGEST_COUNT};

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

    pub(crate) fn session_count(&self, tenant: &TenantId) -> Result<u64, Failure> {
        const SQL: &str = "SELECT count(*) FROM sessions WHERE tenant = ?";
        let mut statement = self.connection.prepare_cached(SQL)?;
        Ok(statement.query_row(params![tenant.as_str()], |row| number(row, 0))?)
    }
}
