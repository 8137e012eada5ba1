//! Sessions and tenants without events.

use conjure_base::{SessionId, TenantId, Timestamp};
use rusqlite::{Row, params};

use super::fault::Failure;
use super::leases::read_owner;
use super::rows::{integer, number};
use super::tables::{Tables, bits};
use crate::error::{JournalError, Place};
use crate::key::{Epoch, SessionKey};
use crate::lease::Lease;
use crate::session::{LARGEST_LIST, ListCursor, SessionInfo, SessionPage};

const COLUMNS: &str = "id, session, events, epoch, owner, lease_until, created, updated,
    (SELECT seq FROM snapshots WHERE snapshots.session = sessions.id)";

impl Tables<'_> {
    pub(crate) fn session(&self, key: &SessionKey) -> Result<SessionInfo, Failure> {
        let sql = format!("SELECT {COLUMNS} FROM sessions WHERE tenant = ? AND session = ?");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut found = statement.query(params![key.tenant.as_str(), bits(key)])?;
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
    ) -> Result<SessionPage, Failure> {
        let sql =
            format!("SELECT {COLUMNS} FROM sessions WHERE tenant = ? AND id < ? ORDER BY id DESC LIMIT ?");
        let limit = limit.clamp(1, LARGEST_LIST);
        let before = after.map_or(i64::MAX, |after| integer(after.number()));
        let mut statement = self.connection.prepare_cached(&sql)?;
        // One more, to know whether these are the last.
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

    pub(crate) fn tenants(&self, after: Option<&TenantId>, limit: u32) -> Result<Vec<TenantId>, Failure> {
        const SQL: &str = "SELECT DISTINCT tenant FROM sessions WHERE tenant > ? ORDER BY tenant LIMIT ?";
        let after = after.map_or("", TenantId::as_str);
        let mut statement = self.connection.prepare_cached(SQL)?;
        let mut found = statement.query(params![after, limit.clamp(1, LARGEST_LIST)])?;
        let mut tenants = Vec::new();
        while let Some(row) = found.next()? {
            let text: String = row.get(0)?;
            // What cannot be a tenant cannot be asked for either.
            tenants.extend(TenantId::new(text));
        }
        Ok(tenants)
    }
}

/// The number of a session that a cursor holds, and the session.
fn read(tenant: &TenantId, row: &Row<'_>) -> Result<(u64, SessionInfo), Failure> {
    let bits: [u8; 16] = row.get(1)?;
    let session = SessionId::from_bits(u128::from_be_bytes(bits));
    let key = SessionKey::new(tenant.clone(), session);
    let epoch = Epoch::from_number(number(row, 3)?);
    let owner: Option<String> = row.get(4)?;
    let until = Timestamp::from_millis(number(row, 5)?);
    let lease = match owner {
        Some(owner) => Some(Lease { owner: read_owner(&key, &owner)?, epoch, until }),
        None => None,
    };
    let snapshot: Option<i64> = row.get(8)?;
    let snapshot = snapshot.map(u64::try_from).transpose().map_err(|_| JournalError::Corrupt {
        place: Place::Snapshot { session: key },
        reason: "the number of its events is negative".to_owned(),
    })?;
    let info = SessionInfo {
        session,
        events: number(row, 2)?,
        epoch,
        lease,
        snapshot,
        created: Timestamp::from_millis(number(row, 6)?),
        updated: Timestamp::from_millis(number(row, 7)?),
    };
    Ok((number(row, 0)?, info))
}
