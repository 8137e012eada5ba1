//! The row of a session in the journal: its overview, which is stored with each append.

use conjure_conversation::{OverviewStatus, SessionOverview};
use conjure_journal::{MAX_SESSION_ROW_BYTES, RowStatus, SessionRow};

/// The version of the row's format: the overview as JSON.
const ROW_VERSION: u32 = 1;

/// The version of a row without an overview.
const NO_OVERVIEW: u32 = 0;

/// The row with this overview.
///
/// The embedder's metadata has no size limit. An overview that is too large is left out of its row, and a list reads the
/// session's events instead. The row always has the status, by which sessions that must be resumed are found.
#[must_use]
pub fn to_row(overview: &SessionOverview) -> SessionRow {
    let status = match overview.status {
        OverviewStatus::Idle => RowStatus::Idle,
        OverviewStatus::Running => RowStatus::Running,
        OverviewStatus::AwaitingAction => RowStatus::AwaitingAction,
    };
    let body = serde_json::to_vec(overview).ok().filter(|body| body.len() <= MAX_SESSION_ROW_BYTES);
    match body {
        Some(body) => SessionRow { status, version: ROW_VERSION, body },
        None => SessionRow { status, version: NO_OVERVIEW, body: Vec::new() },
    }
}

/// The overview in a row. `None` if the row has another version or cannot be parsed. The events have the same facts.
#[must_use]
pub fn from_row(row: &SessionRow) -> Option<SessionOverview> {
    if row.version != ROW_VERSION {
        return None;
    }
    serde_json::from_slice(&row.body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_overview_unless_that_is_too_large() {
        let mut overview = SessionOverview { status: OverviewStatus::Running, ..SessionOverview::default() };
        assert_eq!(from_row(&to_row(&overview)), Some(overview.clone()));
        overview.metadata.insert("key".to_owned(), "v".repeat(MAX_SESSION_ROW_BYTES));
        let row = to_row(&overview);
        assert_eq!((row.status, row.body.len(), from_row(&row)), (RowStatus::Running, 0, None));
    }
}
