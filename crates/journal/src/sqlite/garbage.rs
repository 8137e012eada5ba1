//! What is deleted, and what it leaves.
//!
//! Deleting takes away the row that names a session, at once, and notes what is left of it in tables of garbage. The
//! writer removes the events in small steps between other work, so no deletion holds anybody up for long; after a crash it
//! goes on where it was. Bodies that are kept by their digest are collected in one step for a whole tenant, in which the writer
//! does nothing else: where a session that was deleted had any, or where a reader has seen that there may be some, and only then.

use std::collections::HashSet;

use conjure_base::{Digest, TenantId};
use rusqlite::{OptionalExtension as _, params};

use super::fault::Failure;
use super::rows::blob_digest;
use super::tables::Tables;
use crate::error::JournalError;
use crate::journal::Swept;
use crate::key::SessionKey;

/// How many events one step removes.
const STEP: usize = 512;

/// Whether something is left to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Something,
    Nothing,
}

impl Tables<'_> {
    /// The same for a session that holds so many events, still.
    pub(crate) fn delete_unchanged(&self, key: &SessionKey, events: u64) -> Result<(), Failure> {
        let found = self.head(key)?.events;
        if found != events {
            return Err(JournalError::Conflict { expected: events, found }.into());
        }
        self.delete_session(key)
    }

    /// Whether deletions left something to remove.
    pub(crate) fn has_garbage(&self) -> Result<bool, Failure> {
        const SQL: &str = "
            SELECT EXISTS (SELECT 1 FROM garbage_sessions) OR EXISTS (SELECT 1 FROM garbage_blobs)";
        Ok(self.connection.prepare_cached(SQL)?.query_row([], |row| row.get(0))?)
    }

    pub(crate) fn delete_session(&self, key: &SessionKey) -> Result<(), Failure> {
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
            return self.note_blobs(&key.tenant);
        }
        self.note_deletion();
        Ok(())
    }

    pub(crate) fn delete_tenant(&self, tenant: &TenantId) -> Result<u64, Failure> {
        let run = |sql| self.connection.execute(sql, params![tenant.as_str()]);
        run("INSERT INTO garbage_sessions (session) SELECT id FROM sessions WHERE tenant = ?")?;
        run("DELETE FROM snapshots WHERE session IN (SELECT id FROM sessions WHERE tenant = ?)")?;
        let deleted = run("DELETE FROM sessions WHERE tenant = ?")?;
        run("DELETE FROM counters WHERE tenant = ?")?;
        self.note_blobs(tenant)?;
        Ok(deleted as u64)
    }

    /// The tenant's bodies are to be collected once the events are gone.
    fn note_blobs(&self, tenant: &TenantId) -> Result<(), Failure> {
        const SQL: &str = "INSERT OR IGNORE INTO garbage_blobs (tenant) VALUES (?)";
        self.connection.execute(SQL, params![tenant.as_str()])?;
        self.note_deletion();
        Ok(())
    }

    /// Removes some of what deletions left: events first, then bodies.
    pub(crate) fn remove_garbage(&self) -> Result<Left, Failure> {
        const SESSION: &str = "SELECT session FROM garbage_sessions LIMIT 1";
        const TENANT: &str = "SELECT tenant FROM garbage_blobs LIMIT 1";
        let first = |sql| self.connection.prepare_cached(sql);
        let session = first(SESSION)?.query_row([], |row| row.get::<_, i64>(0)).optional()?;
        if let Some(session) = session {
            return self.remove_events(session);
        }
        let tenant = first(TENANT)?.query_row([], |row| row.get::<_, String>(0)).optional()?;
        let Some(text) = tenant else { return Ok(Left::Nothing) };
        if let Ok(tenant) = TenantId::new(text.clone()) {
            self.collect(&tenant)?;
        }
        self.connection.execute("DELETE FROM garbage_blobs WHERE tenant = ?", params![text])?;
        Ok(Left::Something)
    }

    fn remove_events(&self, session: i64) -> Result<Left, Failure> {
        const EVENTS: &str = "
            DELETE FROM events WHERE rowid IN (SELECT rowid FROM events WHERE session = ? LIMIT ?)";
        const DONE: &str = "DELETE FROM garbage_sessions WHERE session = ?";
        if self.connection.execute(EVENTS, params![session, STEP as i64])? < STEP {
            self.connection.execute(DONE, params![session])?;
        }
        Ok(Left::Something)
    }

    /// Removes the tenant's bodies that no event and no snapshot refers to. The database is locked for writing, so nobody
    /// is about to refer to one.
    pub(crate) fn collect(&self, tenant: &TenantId) -> Result<Swept, Failure> {
        Ok(self.blobs.collect(tenant, &self.live(tenant)?)?)
    }

    /// Whether the tenant may have bodies that nothing refers to. One that is being recorded just now looks like one: only
    /// [`Tables::collect`] knows. Needs no lock, so nobody waits for it.
    pub(crate) fn may_collect(&self, tenant: &TenantId) -> Result<bool, Failure> {
        // First what is there: what is recorded afterwards is referred to.
        let there = self.blobs.sweep(tenant)?;
        let live = self.live(tenant)?;
        Ok(there.iter().any(|digest| !live.contains(digest)))
    }

    /// The tenant's bodies that something refers to.
    fn live(&self, tenant: &TenantId) -> Result<HashSet<Digest>, Failure> {
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
