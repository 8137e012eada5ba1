//! Descriptions and lists of sessions and tenants.

use conjure_base::{SessionId, TenantId, Timestamp};
use rusqlite::{Row, params};

use super::error_map::TxError;
use super::leases::parse_owner;
use super::rows::{read_u64, to_i64};
use super::tx::{Tx, session_bits};
use crate::error::{DamagedPart, JournalError};
use crate::key::{Epoch, SessionKey};
use crate::lease::Lease;
use crate::session::{ListCursor, MAX_LIST_ENTRIES, SessionInfo, SessionPage};

const COLUMNS: &str = "id, session, events, epoch, owner, lease_until, created, updated,
    (SELECT seq FROM snapshots WHERE snapshots.session = sessions.id)";

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

    pub(crate) fn sessions(
        &self,
        tenant: &TenantId,
        after: Option<ListCursor>,
        limit: u32,
    ) -> Result<SessionPage, TxError> {
        let sql =
            format!("SELECT {COLUMNS} FROM sessions WHERE tenant = ? AND id < ? ORDER BY id DESC LIMIT ?");
        let limit = limit.clamp(1, MAX_LIST_ENTRIES);
        let before = after.map_or(i64::MAX, |after| to_i64(after.number()));
        let mut statement = self.connection.prepare_cached(&sql)?;
        // One more row shows whether there is a next page.
        let mut found = statement.query(params![tenant.as_str(), before, limit + 1])?;
        let mut page = SessionPage { sessions: Vec::new(), next: None };
        let mut last = None;
        while let Some(row) = found.next()? {
            if page.sessions.len() as u64 == u64::from(limit) {
                page.next = last;
                break;
            }
            let (id, info) = read(tenant, row)?;
            last = Some(ListCursor::from_number(id));
            page.sessions.push(info);
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
    };
    Ok((read_u64(row, 0)?, info))
}
