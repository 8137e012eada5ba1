//! Deletion and garbage collection.
//! A deletion removes the session's row at once, and records the rest in the garbage tables. The writer removes the events in small
//! steps between other calls, so a deletion does not delay them for long. After a crash, the deletion continues.
//!
//! Large bodies are collected in one exclusive step per tenant. It runs only when a deleted session had large bodies, or when a reader has
//! found unreferenced ones.

use std::collections::HashSet;

use conjure_base::{Digest, TenantId};
use rusqlite::{OptionalExtension as _, params};

use super::rows::blob_digest;
use crate::error::JournalError;
use crate::journal::SweepReport;
use crate::key::SessionKey;
use crate::sqlite::database::error_map::TxError;
use crate::sqlite::statements::transaction::Tx;

/// The number of events that one step removes.
const EVENTS_PER_STEP: usize = 512;

/// Whether more garbage remains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MoreWork {
    Yes,
    No,
}

impl Tx<'_> {
    /// Deletes the session if it still has this number of events.
    pub(crate) fn delete_if_unchanged(&self, key: &SessionKey, events: u64) -> Result<(), TxError> {
        let found = self.head(key)?.events;
        if found != events {
            return Err(JournalError::Conflict { expected: events, found }.into());
        }
        self.delete_session(key)
    }

    /// Whether there is garbage of deletions.
    pub(crate) fn has_garbage(&self) -> Result<bool, TxError> {
        const SQL: &str = "
            SELECT EXISTS (SELECT 1 FROM garbage_sessions) OR EXISTS (SELECT 1 FROM garbage_blobs)";
        Ok(self.connection.prepare_cached(SQL)?.query_row([], |row| row.get(0))?)
    }

    pub(crate) fn delete_session(&self, key: &SessionKey) -> Result<(), TxError> {
        const HAS_BLOBS: &str = "
            SELECT EXISTS (SELECT 1 FROM events WHERE session = ?1 AND blob IS NOT NULL)
                OR EXISTS (SELECT 1 FROM snapshots WHERE session = ?1 AND blob IS NOT NULL)";
        let id = self.head(key)?.id;
        let has_blobs: bool =
            self.connection.prepare_cached(HAS_BLOBS)?.query_row(params![id], |row| row.get(0))?;
        let run = |sql| self.connection.execute(sql, params![id]);
        run("INSERT INTO garbage_sessions (session) VALUES (?)")?;
        run("DELETE FROM snapshots WHERE session = ?")?;
        run("DELETE FROM sessions WHERE id = ?")?;
        if has_blobs {
            return self.record_blob_garbage(&key.tenant);
        }
        self.record_deletion();
        Ok(())
    }

    pub(crate) fn delete_tenant(&self, tenant: &TenantId) -> Result<u64, TxError> {
        let run = |sql| self.connection.execute(sql, params![tenant.as_str()]);
        run("INSERT INTO garbage_sessions (session) SELECT id FROM sessions WHERE tenant = ?")?;
        run("DELETE FROM snapshots WHERE session IN (SELECT id FROM sessions WHERE tenant = ?)")?;
        let deleted = run("DELETE FROM sessions WHERE tenant = ?")?;
        run("DELETE FROM counters WHERE tenant = ?")?;
        run("DELETE FROM records WHERE tenant = ?")?;
        run("DELETE FROM record_indexes WHERE tenant = ?")?;
        self.record_blob_garbage(tenant)?;
        Ok(deleted as u64)
    }

    /// Records that the tenant's bodies must be collected after the events were removed.
    fn record_blob_garbage(&self, tenant: &TenantId) -> Result<(), TxError> {
        const SQL: &str = "INSERT OR IGNORE INTO garbage_blobs (tenant) VALUES (?)";
        self.connection.execute(SQL, params![tenant.as_str()])?;
        self.record_deletion();
        Ok(())
    }

    /// Removes some garbage of deletions: events first, then bodies.
    pub(crate) fn remove_garbage(&self) -> Result<MoreWork, TxError> {
        const SESSION: &str = "SELECT session FROM garbage_sessions LIMIT 1";
        const TENANT: &str = "SELECT tenant FROM garbage_blobs LIMIT 1";
        let first = |sql| self.connection.prepare_cached(sql);
        let session = first(SESSION)?.query_row([], |row| row.get::<_, i64>(0)).optional()?;
        if let Some(session) = session {
            return self.remove_events(session);
        }
        let tenant = first(TENANT)?.query_row([], |row| row.get::<_, String>(0)).optional()?;
        let Some(text) = tenant else { return Ok(MoreWork::No) };
        if let Ok(tenant) = TenantId::new(text.clone()) {
            self.collect_blobs(&tenant)?;
        }
        self.connection.execute("DELETE FROM garbage_blobs WHERE tenant = ?", params![text])?;
        Ok(MoreWork::Yes)
    }

    fn remove_events(&self, session: i64) -> Result<MoreWork, TxError> {
        const EVENTS: &str = "
            DELETE FROM events WHERE rowid IN (SELECT rowid FROM events WHERE session = ? LIMIT ?)";
        const DELETE_SESSION: &str = "DELETE FROM garbage_sessions WHERE session = ?";
        if self.connection.execute(EVENTS, params![session, EVENTS_PER_STEP as i64])? < EVENTS_PER_STEP {
            self.connection.execute(DELETE_SESSION, params![session])?;
        }
        Ok(MoreWork::Yes)
    }

    /// Removes the tenant's unreferenced bodies. The caller holds the write lock, so no other call is about to reference one.
    pub(crate) fn collect_blobs(&self, tenant: &TenantId) -> Result<SweepReport, TxError> {
        Ok(self.blobs.collect(tenant, &self.live_blobs(tenant)?)?)
    }

    /// Whether the tenant may have unreferenced bodies. It needs no lock. A body of a running append looks unreferenced too; only
    /// [`Tx::collect_blobs`] is exact.
    pub(crate) fn has_unreferenced_blobs(&self, tenant: &TenantId) -> Result<bool, TxError> {
        // The bodies come first: a body that is stored later has a reference by then.
        let there = self.blobs.sweep(tenant)?;
        let live = self.live_blobs(tenant)?;
        Ok(there.iter().any(|digest| !live.contains(digest)))
    }

    /// The tenant's referenced bodies.
    fn live_blobs(&self, tenant: &TenantId) -> Result<HashSet<Digest>, TxError> {
        const SQL: &str = "
            SELECT blob FROM sessions JOIN events ON events.session = sessions.id
            WHERE tenant = ?1 AND blob IS NOT NULL
            UNION
            SELECT blob FROM sessions JOIN snapshots ON snapshots.session = sessions.id
            WHERE tenant = ?1 AND blob IS NOT NULL";
        let mut statement = self.connection.prepare_cached(SQL)?;
        let mut found = statement.query(params![tenant.as_str()])?;
        let mut live: HashSet<Digest> = HashSet::new();
        while let Some(row) = found.next()? {
            let blob: Vec<u8> = row.get(0)?;
            live.extend(blob_digest(&blob));
        }
        Ok(live)
    }
}
