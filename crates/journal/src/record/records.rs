//! The trait of all stores of records.

use std::fmt;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::error::RecordError;
use super::key::{RecordKey, RecordKind, RecordScope};
use super::query::{RecordPage, RecordQuery};
use super::row::{NewRecord, Record, RecordContent};
use super::write::RecordWrite;

/// The future of a call. It borrows nothing, so an actor may keep it in its state.
pub type RecordFuture<T> = BoxFuture<'static, Result<T, RecordError>>;

/// Stores records: small rows that are no events, such as agents, environments and API keys.
///
/// A call is submitted when its method is called, not when its future is first polled. Writes of one scope run in the order of their
/// submission. An acknowledged write survives any crash. The call of a dropped future may have run completely or not at all.
///
/// Writers exclude each other only by the version that they expect: the epochs of sessions do not fence records. A process that has
/// lost a session's lease can still write records about it. Data that must be fenced belongs in the session's events.
///
/// [`Journal::delete_tenant`](crate::Journal::delete_tenant) of the same database deletes the tenant's records.
///
/// ```
/// use conjure_base::TenantId;
/// use conjure_journal::{
///     IndexName, MemoryRecords, NewRecord, RecordContent, RecordErrorKind, RecordKey, RecordKind, RecordQuery, Records,
/// };
///
/// const AGENT: RecordKind = RecordKind::from_static("agent");
/// const STATUS: IndexName = IndexName::from_static("status");
///
/// # futures_util::FutureExt::now_or_never(async {
/// let (records, acme) = (MemoryRecords::new(), TenantId::new("acme")?);
/// let key = RecordKey::new(&acme, AGENT, "agent_01")?;
/// let content = RecordContent::new("a body").with_unique_name("Writer").with_index(STATUS, "active");
/// let record = records.insert(NewRecord::new(key.clone(), content)).await?;
/// // Of two that change the same version, the second is refused.
/// let changed = RecordContent { body: b"another body".to_vec(), ..record.content };
/// records.replace(&key, record.version, changed.clone()).await?;
/// let late = records.replace(&key, record.version, changed).await;
/// assert_eq!(late.unwrap_err().kind(), RecordErrorKind::VersionConflict);
///
/// let active = RecordQuery::new(&acme, AGENT).with_filter(STATUS, "active");
/// assert_eq!(records.query(active).await?.records[0].version, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Records: Send + Sync + fmt::Debug {
    /// Carries out all of these writes in their order, or none of them. They have one scope, and there are at most
    /// [`MAX_WRITES`](super::MAX_WRITES). For each write, returns the new record or the deleted record, or `None` if there was none
    /// to delete.
    ///
    /// # Errors
    /// `Exists`, `NotFound`, `VersionConflict`, `NameTaken` of the first write that fails; `Invalid`; `TooLarge`; `Storage`.
    fn transact(&self, writes: Vec<RecordWrite>) -> RecordFuture<Vec<Option<Record>>>;

    /// The record with this key.
    ///
    /// # Errors
    /// `Corrupt`; `Storage`.
    fn get(&self, key: &RecordKey) -> RecordFuture<Option<Record>>;

    /// The record with this unique name.
    ///
    /// # Errors
    /// `Corrupt`; `Storage`.
    fn get_by_name(&self, scope: &RecordScope, kind: &RecordKind, name: &str)
    -> RecordFuture<Option<Record>>;

    /// A page of the records that match. A record that exists all the time and keeps its place is on exactly one page.
    ///
    /// # Errors
    /// `WrongCursor`; `Invalid`; `Corrupt`; `Storage`.
    fn query(&self, query: RecordQuery) -> RecordFuture<RecordPage>;

    /// Inserts a record with the version 1.
    ///
    /// # Errors
    /// `Exists`; `NameTaken`; `Invalid`; `TooLarge`; `Storage`.
    fn insert(&self, record: NewRecord) -> RecordFuture<Record> {
        let key = record.key.clone();
        written(key, self.transact(vec![RecordWrite::Insert(record)]))
    }

    /// Replaces the content of a record, if it has this version. Nothing of the old content stays.
    ///
    /// # Errors
    /// `NotFound`; `VersionConflict`; `NameTaken`; `Invalid`; `TooLarge`; `Storage`.
    fn replace(
        &self,
        key: &RecordKey,
        expected_version: u64,
        content: RecordContent,
    ) -> RecordFuture<Record> {
        let write = RecordWrite::Replace { key: key.clone(), expected_version, content };
        written(key.clone(), self.transact(vec![write]))
    }

    /// Deletes a record. Returns whether there was one. If a version is expected and the record exists, its version must be that
    /// one.
    ///
    /// # Errors
    /// `VersionConflict`; `Storage`.
    fn delete(&self, key: &RecordKey, expected_version: Option<u64>) -> RecordFuture<bool> {
        let write = RecordWrite::Delete { key: key.clone(), expected_version };
        let deleted = self.transact(vec![write]);
        async move { Ok(deleted.await?.into_iter().flatten().next().is_some()) }.boxed()
    }
}

/// The record that the only write of a transaction returns.
fn written(key: RecordKey, written: RecordFuture<Vec<Option<Record>>>) -> RecordFuture<Record> {
    async move { written.await?.into_iter().flatten().next().ok_or(RecordError::NotFound { key }) }.boxed()
}
