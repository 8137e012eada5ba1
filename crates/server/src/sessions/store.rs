//! The rows of sessions.

use conjure_api::{Cursor, Order, SessionListQuery, TwoWayPage};
use conjure_base::{SessionId, TenantId};
use conjure_journal::{
    Direction, IndexName, NewRecord, Record, RecordContent, RecordCursor, RecordKind, RecordQuery, Records,
};

use super::row::SessionRow;
use crate::http::ApiError;
use crate::objects::{ARCHIVED, Rows, archived, created_at, decode, encode, with_archived};

/// The kind of a session's row.
static SESSION: RecordKind = RecordKind::from_static("session");
/// The agent's id.
const AGENT: IndexName = IndexName::from_static("agent");
/// The agent's version.
const AGENT_VERSION: IndexName = IndexName::from_static("agent-version");

/// A session's row, with its record.
#[derive(Debug, Clone)]
pub(crate) struct StoredSession {
    pub(crate) id: SessionId,
    pub(crate) row: SessionRow,
    pub(crate) record: Record,
}

/// The rows of one tenant's sessions.
#[derive(Clone, Copy)]
pub(crate) struct SessionStore<'r> {
    rows: Rows<'r>,
}

impl<'r> SessionStore<'r> {
    pub(crate) const fn new(records: &'r dyn Records, tenant: &'r TenantId) -> Self {
        Self { rows: Rows { records, tenant, kind: &SESSION } }
    }

    pub(crate) async fn insert(&self, id: SessionId, row: SessionRow) -> Result<StoredSession, ApiError> {
        let record = NewRecord::new(self.rows.key(id)?, content(&row)?);
        Ok(StoredSession { id, record: self.rows.records.insert(record).await?, row })
    }

    /// The session with this id.
    ///
    /// # Errors
    /// 404 if the tenant has no such session.
    pub(crate) async fn get(&self, id: &str) -> Result<StoredSession, ApiError> {
        let parsed: SessionId = id.parse().map_err(|_| self.rows.missing(id))?;
        read(self.rows.get(parsed).await?)
    }

    /// Changes a row. `change` runs again after a conflicting write.
    pub(crate) async fn update(
        &self,
        id: SessionId,
        change: impl Fn(&mut SessionRow) -> Result<(), ApiError>,
    ) -> Result<StoredSession, ApiError> {
        self.rows
            .change(id, |record| {
                let mut row: SessionRow = decode(record)?;
                change(&mut row)?;
                Ok(((), Some(content(&row)?)))
            })
            .await?;
        read(self.rows.get(id).await?)
    }

    pub(crate) async fn delete(&self, id: SessionId) -> Result<(), ApiError> {
        self.rows.remove(id).await.map(drop)
    }

    /// Whether a session with this id exists.
    pub(crate) async fn contains(&self, id: SessionId) -> Result<bool, ApiError> {
        Ok(self.rows.find(id).await?.is_some())
    }

    /// A page of sessions, readable in both directions.
    pub(crate) async fn list(&self, query: &SessionListQuery) -> Result<TwoWayPage<StoredSession>, ApiError> {
        let list = list_name(query);
        let place = query.page.page.as_deref().map(|page| Cursor::position(page, &list)).transpose()?;
        let place = place.as_deref().map(PageStart::read).transpose()?;
        let (is_backwards, after) = match place {
            None => (false, None),
            Some(PageStart::After(cursor)) => (false, Some(cursor)),
            Some(PageStart::Before(cursor)) => (true, Some(cursor)),
        };
        let forwards = self.query(query, query.order);
        let backwards = self.query(query, reversed(query.order));
        let wanted = if is_backwards { &backwards } else { &forwards };
        let had_place = after.is_some();
        let limit = u32::try_from(query.page.limit).unwrap_or(u32::MAX);
        let page = self.rows.records.query(wanted.clone().with_after(after).with_limit(limit)).await?;
        let has_more = page.next.is_some();
        let mut records = page.records;
        if is_backwards {
            records.reverse();
        }
        let (has_next, has_prev) = if is_backwards { (had_place, has_more) } else { (has_more, had_place) };
        let cursor = |record: Option<&Record>, query: &RecordQuery, direction: &str| {
            let cursor = query.cursor_at(record?)?;
            Some(Cursor { list: list.clone(), position: format!("{direction} {cursor}") }.encode())
        };
        let next_page = if has_next { cursor(records.last(), &forwards, AFTER) } else { None };
        let prev_page = if has_prev { cursor(records.first(), &backwards, BEFORE) } else { None };
        let data = records.into_iter().map(read).collect::<Result<_, _>>()?;
        Ok(TwoWayPage { data, next_page, prev_page })
    }

    fn query(&self, query: &SessionListQuery, order: Order) -> RecordQuery {
        let mut wanted = self.rows.query();
        if let Some(agent) = &query.agent_id {
            wanted = wanted.with_filter(AGENT, agent.as_str());
        }
        if let Some(version) = query.agent_version {
            wanted = wanted.with_filter(AGENT_VERSION, number(version));
        }
        wanted = with_archived(wanted, query.include_archived);
        let direction = match order {
            Order::Ascending => Direction::Ascending,
            Order::Descending => Direction::Descending,
        };
        wanted.with_order(created_at(&query.created_at), direction)
    }
}

/// Where a page begins, and in which direction it is read.
enum PageStart {
    After(RecordCursor),
    Before(RecordCursor),
}

const AFTER: &str = "after";
const BEFORE: &str = "before";

impl PageStart {
    fn read(text: &str) -> Result<Self, ApiError> {
        let wrong =
            || ApiError::invalid("page: the value is not a cursor; give `next_page` or `prev_page` as it is");
        let (direction, cursor) = text.split_once(' ').ok_or_else(wrong)?;
        let cursor = cursor.parse().map_err(|_| wrong())?;
        match direction {
            AFTER => Ok(Self::After(cursor)),
            BEFORE => Ok(Self::Before(cursor)),
            _ => Err(wrong()),
        }
    }
}

/// The list that a cursor belongs to: its order and its filters.
fn list_name(query: &SessionListQuery) -> String {
    let SessionListQuery { agent_id, agent_version, created_at, include_archived, order, statuses, .. } =
        query;
    let statuses: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
    format!(
        "sessions {} {agent_id:?} {agent_version:?} {created_at:?} {include_archived} {statuses:?}",
        order.as_str()
    )
}

const fn reversed(order: Order) -> Order {
    match order {
        Order::Ascending => Order::Descending,
        Order::Descending => Order::Ascending,
    }
}

/// Decodes the session's row in a record.
fn read(record: Record) -> Result<StoredSession, ApiError> {
    let id = record.key.id().parse().map_err(|_| ApiError::internal("a stored session has a wrong id"))?;
    Ok(StoredSession { id, row: decode(&record)?, record })
}

fn content(row: &SessionRow) -> Result<RecordContent, ApiError> {
    Ok(encode(row)?
        .with_index(AGENT, row.agent.id.to_string())
        .with_index(AGENT_VERSION, number(row.agent.version))
        .with_index(ARCHIVED, archived(row.archived_at.is_some())))
}

fn number(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}
