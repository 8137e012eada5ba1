//! Lists of sessions: of a tenant by status and time, and of all tenants those at work.

use std::ops::Bound;

use conjure_base::Timestamp;

use crate::key::SessionKey;
use crate::record::Direction;
use crate::session::ListCursor;
use crate::session_row::RowStatus;

/// Which sessions of a tenant are listed. The order is that of their creation.
///
/// A page costs what it returns, also with statuses and bounds of the creation. Bounds of the last append are checked session by session.
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
    /// Where the page begins; `None`: at the first session. A cursor is good for both directions.
    pub after: Option<ListCursor>,
    /// The most sessions, 1 to 1,000.
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
