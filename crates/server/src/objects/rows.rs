//! Rows of objects: JSON bodies in records, pages, and changes by compare-and-set.

use std::ops::Bound;

use conjure_api::{Page, PageQuery, TimeRange};
use conjure_base::{Clock as _, SystemClock, TenantId};
use conjure_journal::{
    IndexName, Record, RecordContent, RecordCursor, RecordError, RecordErrorKind, RecordKey, RecordKind,
    RecordOrder, RecordQuery, RecordWrite, Records,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::ApiError;

/// The maximum number of attempts at a change, if other writers change the row.
pub(crate) const MAX_ATTEMPTS: usize = 16;

/// How many rows are deleted at once.
const DELETED_AT_ONCE: u32 = 200;

/// The index that distinguishes archived objects from others.
pub(crate) const ARCHIVED: IndexName = IndexName::from_static("archived");

/// The value of [`ARCHIVED`].
pub(crate) fn archived(is_archived: bool) -> i64 {
    i64::from(is_archived)
}

/// What all rows of one kind share.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'r> {
    pub(crate) records: &'r dyn Records,
    pub(crate) tenant: &'r TenantId,
    pub(crate) kind: &'r RecordKind,
}

/// The current time, in the API's format.
pub(crate) fn now() -> conjure_api::Time {
    SystemClock.timestamp().into()
}

/// Encodes an object as the JSON body of a record.
pub(crate) fn encode(body: &impl Serialize) -> Result<RecordContent, ApiError> {
    let json = serde_json::to_vec(body).map_err(|error| damaged(&error))?;
    Ok(RecordContent::new(json))
}

/// Decodes the object in a record.
pub(crate) fn decode<T: DeserializeOwned>(record: &Record) -> Result<T, ApiError> {
    serde_json::from_slice(&record.content.body).map_err(|error| damaged(&error))
}

pub(crate) fn damaged(error: &serde_json::Error) -> ApiError {
    tracing::error!(%error, "the row of an object cannot be read or written");
    ApiError::internal("the stored object is damaged; the server's log has the cause")
}

/// Deletes all rows that the query finds.
pub(crate) async fn delete_all(records: &dyn Records, query: RecordQuery) -> Result<(), ApiError> {
    loop {
        let page = records.query(query.clone().with_limit(DELETED_AT_ONCE)).await?;
        let delete = |record: Record| RecordWrite::Delete { key: record.key, expected_version: None };
        let writes: Vec<RecordWrite> = page.records.into_iter().map(delete).collect();
        if writes.is_empty() {
            return Ok(());
        }
        records.transact(writes).await?;
    }
}

impl Rows<'_> {
    pub(crate) fn key(&self, id: impl ToString) -> Result<RecordKey, ApiError> {
        Ok(RecordKey::new(self.tenant, self.kind.clone(), id.to_string())?)
    }

    pub(crate) async fn find(&self, id: impl ToString) -> Result<Option<Record>, ApiError> {
        Ok(self.records.get(&self.key(id)?).await?)
    }

    /// The row with this id.
    ///
    /// # Errors
    /// 404 if there is none.
    pub(crate) async fn get(&self, id: impl ToString) -> Result<Record, ApiError> {
        let id = id.to_string();
        self.find(&id).await?.ok_or_else(|| self.missing(&id))
    }

    /// The error if no row has this id, which may be any text of a client.
    pub(crate) fn missing(&self, id: &str) -> ApiError {
        ApiError::not_found(format!("there is no {} `{}`", self.kind, id.escape_debug()))
    }

    /// Deletes a row.
    ///
    /// # Errors
    /// 404 if there is none.
    pub(crate) async fn delete(&self, id: impl ToString) -> Result<(), ApiError> {
        let id = id.to_string();
        if self.remove(&id).await? { Ok(()) } else { Err(self.missing(&id)) }
    }

    /// Deletes a row. Returns whether it existed.
    pub(crate) async fn remove(&self, id: impl ToString) -> Result<bool, ApiError> {
        Ok(self.records.delete(&self.key(id)?, None).await?)
    }

    /// Changes a row. `change` returns the new content for the current record, or `None` to keep it. It runs again after a conflicting
    /// write.
    pub(crate) async fn change<T>(
        &self,
        id: impl ToString,
        mut change: impl FnMut(&Record) -> Result<(T, Option<RecordContent>), ApiError>,
    ) -> Result<T, ApiError> {
        let id = id.to_string();
        for _ in 0..MAX_ATTEMPTS {
            let record = self.get(&id).await?;
            let (value, content) = change(&record)?;
            let Some(content) = content else { return Ok(value) };
            if unless_lost(self.records.replace(&record.key, record.version, content).await)?.is_some() {
                return Ok(value);
            }
        }
        Err(busy())
    }

    /// A page of the rows, the newest first.
    pub(crate) async fn page<T>(
        &self,
        query: RecordQuery,
        page: &PageQuery,
        mut read: impl FnMut(&Record) -> Result<T, ApiError>,
    ) -> Result<Page<T>, ApiError> {
        let query = query.with_after(cursor(page)?).with_limit(u32::try_from(page.limit).unwrap_or(u32::MAX));
        let found = self.records.query(query).await?;
        Ok(Page {
            data: found.records.iter().map(&mut read).collect::<Result<_, _>>()?,
            next_page: found.next.map(|cursor| format!("{CURSOR_PREFIX}{cursor}")),
        })
    }

    /// A query for all rows, the newest first.
    pub(crate) fn query(&self) -> RecordQuery {
        RecordQuery::new(self.tenant, self.kind.clone())
    }
}

/// Narrows a query to objects that are not archived, unless all are wanted. This filter matches many rows, so it comes after all others: the
/// index of the first filter is read.
pub(crate) fn with_archived(query: RecordQuery, include_archived: bool) -> RecordQuery {
    if include_archived { query } else { query.with_filter(ARCHIVED, archived(false)) }
}

/// The result of a write. `None` if the row was changed since it was read, so that the change must be tried again.
pub(crate) fn unless_lost<T>(written: Result<T, RecordError>) -> Result<Option<T>, ApiError> {
    match written {
        Err(error) if error.kind() == RecordErrorKind::VersionConflict => Ok(None),
        written => written.map(Some).map_err(not_written),
    }
}

/// The error of a failed write. A taken unique name becomes an error about the object's name.
pub(crate) fn not_written(error: RecordError) -> ApiError {
    match error.kind() {
        RecordErrorKind::NameTaken => {
            ApiError::conflict("name: another object of this kind has this name already; choose another name")
        }
        _ => error.into(),
    }
}

/// The error after too many conflicting writes.
pub(crate) fn busy() -> ApiError {
    ApiError::busy("others change this object at the same time; read it and try again")
}

/// The prefix of cursors on the wire.
pub(crate) const CURSOR_PREFIX: &str = "page_";

/// The position at which a page begins.
pub(crate) fn cursor(page: &PageQuery) -> Result<Option<RecordCursor>, ApiError> {
    let Some(text) = &page.page else { return Ok(None) };
    let cursor = text.strip_prefix(CURSOR_PREFIX).and_then(|text| text.parse().ok());
    cursor.map(Some).ok_or_else(|| {
        ApiError::invalid(
            "page: the value is not a cursor; pass `next_page` of an earlier response unchanged",
        )
    })
}

/// The order by creation time within these bounds.
pub(crate) fn created_at(range: &TimeRange) -> RecordOrder {
    let bound =
        |included: Option<conjure_api::Time>, excluded: Option<conjure_api::Time>| match (included, excluded)
        {
            (_, Some(time)) => Bound::Excluded(time.0),
            (Some(time), None) => Bound::Included(time.0),
            (None, None) => Bound::Unbounded,
        };
    RecordOrder::CreatedAt { from: bound(range.gte, range.gt), to: bound(range.lte, range.lt) }
}
