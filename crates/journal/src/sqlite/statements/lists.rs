//! Descriptions and lists of sessions and tenants.

use std::collections::BTreeSet;
use std::ops::Bound;

use conjure_base::{SessionId, TenantId, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Row, params, params_from_iter};

use super::leases::parse_owner;
use super::rows::session_row;
use super::rows::{read_u64, status_number, to_i64};
use crate::error::{DamagedPart, JournalError};
use crate::key::{Epoch, SessionKey};
use crate::lease::Lease;
use crate::record::Direction;
use crate::session::{ListCursor, MAX_LIST_ENTRIES, SessionInfo, SessionPage};
use crate::session_query::{RunningPage, SessionQuery};
use crate::session_row::RowStatus;
use crate::sqlite::database::error_map::TxError;
use crate::sqlite::statements::transaction::{Tx, session_bits};

const COLUMNS: &str = "id, session, events, epoch, owner, lease_until, created, updated,
    (SELECT seq FROM snapshots WHERE snapshots.session = sessions.id), status, row_version, row, row_checksum";

impl Tx<'_> {
    pub(crate) fn session(&self, key: &SessionKey) -> Result<SessionInfo, TxError> {
        let sql = format!("SELECT {COLUMNS} FROM sessions WHERE tenant = ? AND session = ?");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut found = statement.query(params![key.tenant.as_str(), session_bits(key)])?;
        match found.next()? {
            Some(row) => Ok(read(&key.tenant, row)?.1),
            None => Err(JournalError::NotFound { session: key.clone() }.into()),
        }
    }

    pub(crate) fn query_sessions(
        &self,
        tenant: &TenantId,
        query: &SessionQuery,
    ) -> Result<SessionPage, TxError> {
        let limit = query.limit.clamp(1, MAX_LIST_ENTRIES) as usize;
        // One snapshot for all statuses. Nothing changes, so dropping the transaction is enough.
        let _transaction = self.connection.unchecked_transaction()?;
        let mut found = Vec::new();
        let statuses: BTreeSet<_> = query.statuses.iter().copied().collect();
        if statuses.is_empty() {
            found = self.find_sessions(tenant, query, None, limit)?;
        }
        for status in statuses {
            found.extend(self.find_sessions(tenant, query, Some(status), limit)?);
        }
        found.sort_by_key(|(id, _)| *id);
        if query.direction == Direction::Descending {
            found.reverse();
        }
        // One more session shows whether there is a next page.
        let is_cut = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| is_cut).map(|(id, _)| ListCursor::from_number(*id));
        Ok(SessionPage { sessions: found.into_iter().map(|(_, info)| info).collect(), next })
    }

    /// The first sessions with this status, one more than the limit.
    ///
    /// Ids are in the order of the creation, so bounds of the time become bounds of the id, and the page is a range of one index.
    fn find_sessions(
        &self,
        tenant: &TenantId,
        query: &SessionQuery,
        status: Option<RowStatus>,
        limit: usize,
    ) -> Result<Vec<(u64, SessionInfo)>, TxError> {
        let index = if status.is_some() { "sessions_by_status" } else { "sessions_in_order" };
        let mut sql = format!("SELECT {COLUMNS} FROM sessions INDEXED BY {index} WHERE tenant = ?1");
        let mut values = vec![Value::Text(tenant.as_str().to_owned())];
        let mut add = |condition: &str, number: i64| {
            values.push(Value::Integer(number));
            sql.push_str(&condition.replace("{}", &format!("?{}", values.len())));
        };
        if let Some(status) = status {
            add(" AND status = {}", status_number(status));
        }
        if let Some(after) = query.after {
            let condition = match query.direction {
                Direction::Ascending => " AND id > {}",
                Direction::Descending => " AND id < {}",
            };
            add(condition, to_i64(after.number()));
        }
        let first = "SELECT id FROM sessions WHERE tenant = ?1 AND created";
        for (bound, compare) in [(query.created.0, [">=", ">"]), (query.created.1, ["<=", "<"])] {
            let is_start = compare[0] == ">=";
            let order = if is_start { "created, id" } else { "created DESC, id DESC" };
            if let Some((compare, time)) = sql_bound(bound, compare) {
                let found = format!("({first} {compare} {{}} ORDER BY {order} LIMIT 1)");
                add(&format!(" AND id {} {found}", if is_start { ">=" } else { "<=" }), time);
            }
        }
        for (bound, compare) in [(query.updated.0, [">=", ">"]), (query.updated.1, ["<=", "<"])] {
            if let Some((compare, time)) = sql_bound(bound, compare) {
                add(&format!(" AND updated {compare} {{}}"), time);
            }
        }
        let direction = if query.direction == Direction::Descending { "DESC" } else { "ASC" };
        add(&format!(" ORDER BY id {direction} LIMIT {{}}"), i64::try_from(limit + 1).unwrap_or(i64::MAX));
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(read(tenant, row)?);
        }
        Ok(found)
    }

    pub(crate) fn running_sessions(
        &self,
        after: Option<ListCursor>,
        limit: u32,
    ) -> Result<RunningPage, TxError> {
        const SQL: &str = "
            SELECT id, tenant, session FROM sessions INDEXED BY sessions_at_work
            WHERE status = 1 AND id > ? ORDER BY id LIMIT ?";
        let limit = limit.clamp(1, MAX_LIST_ENTRIES);
        let mut statement = self.connection.prepare_cached(SQL)?;
        let mut rows = statement.query(params![to_i64(after.map_or(0, ListCursor::number)), limit + 1])?;
        let (mut page, mut read, mut last) = (RunningPage { sessions: Vec::new(), next: None }, 0, None);
        while let Some(row) = rows.next()? {
            if read == limit {
                page.next = last;
                break;
            }
            read += 1;
            last = Some(ListCursor::from_number(read_u64(row, 0)?));
            let bits: [u8; 16] = row.get(2)?;
            let session = SessionId::from_bits(u128::from_be_bytes(bits));
            // An invalid tenant name cannot be requested, so it is skipped.
            let tenant = TenantId::new(row.get::<_, String>(1)?);
            page.sessions.extend(tenant.map(|tenant| SessionKey::new(tenant, session)));
        }
        Ok(page)
    }

    pub(crate) fn tenants(&self, after: Option<&TenantId>, limit: u32) -> Result<Vec<TenantId>, TxError> {
        const SQL: &str = "SELECT DISTINCT tenant FROM sessions WHERE tenant > ? ORDER BY tenant LIMIT ?";
        let after = after.map_or("", TenantId::as_str);
        let mut statement = self.connection.prepare_cached(SQL)?;
        let mut found = statement.query(params![after, limit.clamp(1, MAX_LIST_ENTRIES)])?;
        let mut tenants = Vec::new();
        while let Some(row) = found.next()? {
            let text: String = row.get(0)?;
            // An invalid tenant name cannot be requested, so it is skipped.
            tenants.extend(TenantId::new(text));
        }
        Ok(tenants)
    }
}

/// The SQL comparison and the value of a bound. The caller passes the two operators, with and without equality.
fn sql_bound(
    bound: Bound<Timestamp>,
    [included, excluded]: [&'static str; 2],
) -> Option<(&'static str, i64)> {
    match bound {
        Bound::Included(time) => Some((included, to_i64(time.millis()))),
        Bound::Excluded(time) => Some((excluded, to_i64(time.millis()))),
        Bound::Unbounded => None,
    }
}

/// The cursor number of a session, and the session.
fn read(tenant: &TenantId, row: &Row<'_>) -> Result<(u64, SessionInfo), TxError> {
    let bits: [u8; 16] = row.get(1)?;
    let session = SessionId::from_bits(u128::from_be_bytes(bits));
    let key = SessionKey::new(tenant.clone(), session);
    let epoch = Epoch::from_number(read_u64(row, 3)?);
    let owner: Option<String> = row.get(4)?;
    let until = Timestamp::from_millis(read_u64(row, 5)?);
    let lease = match owner {
        Some(owner) => Some(Lease { owner: parse_owner(&key, &owner)?, epoch, until }),
        None => None,
    };
    let session_row = session_row(&key, row, 9)?;
    let snapshot: Option<i64> = row.get(8)?;
    let snapshot = snapshot.map(u64::try_from).transpose().map_err(|_| JournalError::Corrupt {
        place: DamagedPart::Snapshot { session: key },
        reason: "the number of its events is negative".to_owned(),
    })?;
    let info = SessionInfo {
        session,
        events: read_u64(row, 2)?,
        epoch,
        lease,
        snapshot,
        created: Timestamp::from_millis(read_u64(row, 6)?),
        updated: Timestamp::from_millis(read_u64(row, 7)?),
        row: session_row,
    };
    Ok((read_u64(row, 0)?, info))
}
