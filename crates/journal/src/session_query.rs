//! Queries of sessions: the sessions of one tenant by status and time, and the running sessions of all tenants.

use std::ops::Bound;

use conjure_base::Timestamp;

use crate::key::SessionKey;
use crate::record::Direction;
use crate::session::ListCursor;
use crate::session_row::RowStatus;

/// A query of a tenant's sessions, in the order of their creation.
///
/// The cost of a page is in proportion to the sessions that it returns, also with statuses and bounds of the creation. Bounds of
/// the last append are checked session by session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionQuery {
    /// Only sessions whose row has one of these statuses; empty: all sessions, also those without a row.
    pub statuses: Vec<RowStatus>,
    /// The bounds of the creation.
    pub created: (Bound<Timestamp>, Bound<Timestamp>),
    /// The bounds of the last append.
    pub updated: (Bound<Timestamp>, Bound<Timestamp>),
    /// The direction: descending lists the newest first.
    pub direction: Direction,
    /// Where the page begins; `None`: at the first session. A cursor is valid for both directions.
    pub after: Option<ListCursor>,
    /// The maximum number of sessions, 1 to 1,000.
    pub limit: u32,
}

impl Default for SessionQuery {
    /// All sessions, the newest first, 100 a page.
    fn default() -> Self {
        Self {
            statuses: Vec::new(),
            created: (Bound::Unbounded, Bound::Unbounded),
            updated: (Bound::Unbounded, Bound::Unbounded),
            direction: Direction::Descending,
            after: None,
            limit: 100,
        }
    }
}

/// A page of sessions with the status [`RowStatus::Running`], of all tenants, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningPage {
    /// The sessions.
    pub sessions: Vec<SessionKey>,
    /// The start of the next page; `None` on the last page.
    pub next: Option<ListCursor>,
}
