//! Rows of sessions: a row is stored with its append or not at all, and lists find sessions by their rows.

use std::ops::Bound;

use conjure_base::Timestamp;

use super::fixture::{
    CaseError, CaseResult, JournalFixture, ensure_eq, ensure_fails, new_session, notes, open_session, tenant,
};
use crate::error::JournalErrorKind;
use crate::journal::Journal;
use crate::key::{Epoch, SessionKey};
use crate::lease::LeaseOwner;
use crate::record::Direction;
use crate::session::SessionInfo;
use crate::session_query::SessionQuery;
use crate::session_row::{AppendBatch, MAX_SESSION_ROW_BYTES, RowStatus, SessionRow};

const STATUSES: [RowStatus; 3] = [RowStatus::Idle, RowStatus::Running, RowStatus::AwaitingAction];

fn row(status: RowStatus, body: &[u8]) -> SessionRow {
    SessionRow { status, version: 7, body: body.to_vec() }
}

/// Appends one event with this row.
async fn append(
    journal: &dyn Journal,
    key: &SessionKey,
    seq: u64,
    row: impl Into<Option<SessionRow>>,
) -> Result<u64, crate::JournalError> {
    let batch = AppendBatch::new(notes(["x"])).with_row(row);
    journal.append_batch(key, seq, Epoch::NONE, batch).await
}

pub(crate) async fn a_row_is_stored_with_its_append(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    ensure_eq(journal.session(&key).await?.row, None, "the row at first")?;
    for (seq, status) in (0..).zip(STATUSES) {
        let stored = row(status, &[u8::try_from(seq)?; 300]);
        append(&*journal, &key, seq, stored.clone()).await?;
        let reopened = fixture.open().await?;
        ensure_eq(reopened.session(&key).await?.row, Some(stored), "the row")?;
    }
    // An append without a row removes the old row, which does not describe the new event.
    append(&*journal, &key, 3, None).await?;
    ensure_eq(journal.session(&key).await?.row, None, "the row of an append without one")?;
    let updated = journal.session(&key).await?.updated;
    // A row without events describes the events that exist.
    let alone = || AppendBatch::default().with_row(row(RowStatus::Idle, b"alone"));
    ensure_eq(journal.append_batch(&key, 4, Epoch::NONE, alone()).await?, 4, "the events")?;
    let info = journal.session(&key).await?;
    ensure_eq((info.row, info.updated), (alone().row, updated), "the row alone")?;
    // Neither an empty batch nor a refused one changes the row.
    journal.append_batch(&key, 4, Epoch::NONE, AppendBatch::default()).await?;
    let result = append(&*journal, &key, 3, row(RowStatus::Running, b"late")).await;
    ensure_fails(result, JournalErrorKind::Conflict, "a conflict")?;
    let result = journal.append_batch(&key, 3, Epoch::NONE, alone()).await;
    ensure_fails(result, JournalErrorKind::Conflict, "a row of other events")?;
    let large = append(&*journal, &key, 4, row(RowStatus::Idle, &vec![0; MAX_SESSION_ROW_BYTES + 1])).await;
    ensure_fails(large, JournalErrorKind::Invalid, "a large row")?;
    journal.acquire_lease(&key, &LeaseOwner::new("host")?, std::time::Duration::from_secs(60)).await?;
    let stale = append(&*journal, &key, 4, row(RowStatus::Running, b"stale")).await;
    ensure_fails(stale, JournalErrorKind::StaleEpoch, "a stale epoch")?;
    let info = journal.session(&key).await?;
    ensure_eq((info.row, info.events), (alone().row, 4), "the row after refusals")
}

/// Creates nine sessions for each of two tenants, with the statuses in turn. Returns the keys of one tenant.
async fn nine_sessions(journal: &dyn Journal) -> Result<Vec<SessionKey>, CaseError> {
    let mut keys = Vec::new();
    for status in STATUSES.into_iter().cycle().take(9) {
        for of in ["acme", "globex"] {
            let key = new_session(journal, &tenant(of)?).await?;
            append(journal, &key, 0, row(status, of.as_bytes())).await?;
            keys.push(key);
        }
    }
    keys.retain(|key| key.tenant.as_str() == "acme");
    // One more session has no row.
    new_session(journal, &tenant("acme")?).await?;
    Ok(keys)
}

/// All pages of a query, with two sessions each.
async fn pages(journal: &dyn Journal, query: &SessionQuery) -> Result<Vec<SessionInfo>, CaseError> {
    let mut query = SessionQuery { limit: 2, ..query.clone() };
    let mut found = Vec::new();
    loop {
        let page = journal.query_sessions(&tenant("acme")?, query.clone()).await?;
        found.extend(page.sessions);
        query.after = page.next;
        if query.after.is_none() {
            return Ok(found);
        }
    }
}

pub(crate) async fn sessions_are_listed_by_status_and_time(fixture: &dyn JournalFixture) -> CaseResult {
    let journal = fixture.open().await?;
    let keys = nine_sessions(&*journal).await?;
    let oldest_first = SessionQuery { direction: Direction::Ascending, ..SessionQuery::default() };
    let all = pages(&*journal, &oldest_first).await?;
    ensure_eq(all.len(), 10, "all sessions")?;
    let times =
        [all[4].created, all[4].updated, Timestamp::from_millis(0), Timestamp::from_millis(u64::MAX >> 1)];
    let bounds = times.into_iter().flat_map(|time| {
        [
            (Bound::Included(time), Bound::Unbounded),
            (Bound::Excluded(time), Bound::Unbounded),
            (Bound::Unbounded, Bound::Included(time)),
            (Bound::Unbounded, Bound::Excluded(time)),
            (Bound::Included(time), Bound::Included(time)),
        ]
    });
    let bounds: Vec<_> = bounds.chain([(Bound::Unbounded, Bound::Unbounded)]).collect();
    let statuses = [
        vec![],
        vec![RowStatus::Idle],
        vec![RowStatus::Running],
        vec![RowStatus::AwaitingAction, RowStatus::Idle],
        vec![RowStatus::Running, RowStatus::Running],
        STATUSES.to_vec(),
    ];
    for statuses in &statuses {
        for bounds in &bounds {
            for direction in [Direction::Ascending, Direction::Descending] {
                let unbounded = (Bound::Unbounded, Bound::Unbounded);
                for (created, updated) in [(*bounds, unbounded), (unbounded, *bounds)] {
                    let statuses = statuses.clone();
                    let query =
                        SessionQuery { statuses, created, updated, direction, ..SessionQuery::default() };
                    check(&*journal, &all, &query).await?;
                }
            }
        }
    }
    let running =
        all.iter().filter(|info| info.row.as_ref().is_some_and(|row| row.status == RowStatus::Running));
    let running: Vec<_> = running.map(|info| info.session).collect();
    let expected = keys.iter().skip(1).step_by(3).map(|key| key.session);
    ensure_eq(running, expected.collect(), "the running ones")
}

/// Checks that the query finds the sessions that match its definition. `all` has all sessions in ascending order.
async fn check(journal: &dyn Journal, all: &[SessionInfo], query: &SessionQuery) -> CaseResult {
    use std::ops::RangeBounds as _;
    let fits = |info: &&SessionInfo| {
        let status = info.row.as_ref().map(|row| row.status);
        (query.statuses.is_empty() || status.is_some_and(|status| query.statuses.contains(&status)))
            && query.created.contains(&info.created)
            && query.updated.contains(&info.updated)
    };
    let mut expected: Vec<_> = all.iter().filter(fits).cloned().collect();
    if query.direction == Direction::Descending {
        expected.reverse();
    }
    ensure_eq(pages(journal, query).await?, expected, &format!("{query:?}"))
}

pub(crate) async fn running_sessions_of_all_tenants_are_found(fixture: &dyn JournalFixture) -> CaseResult {
    let journal = fixture.open().await?;
    let running = async |journal: &dyn Journal| {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = journal.running_sessions(after, 2).await?;
            found.extend(page.sessions);
            after = page.next;
            if after.is_none() {
                return Ok::<_, CaseError>(found);
            }
        }
    };
    ensure_eq(running(&*journal).await?, Vec::new(), "the running ones at first")?;
    let keys = nine_sessions(&*journal).await?;
    let found = running(&*journal).await?;
    ensure_eq(found.len(), 6, "the running ones of both tenants")?;
    let acme_keys: Vec<_> = found.into_iter().filter(|key| key.tenant.as_str() == "acme").collect();
    let expected: Vec<_> = keys.iter().skip(1).step_by(3).cloned().collect();
    ensure_eq(&acme_keys, &expected, "the running ones of one tenant, the oldest first")?;
    // One session becomes idle, one is deleted, and one is written without a row.
    append(&*journal, &expected[0], 1, row(RowStatus::Idle, b"")).await?;
    journal.delete_session(&expected[1]).await?;
    append(&*journal, &expected[2], 1, None).await?;
    journal.delete_tenant(&tenant("globex")?).await?;
    ensure_eq(running(&*fixture.open().await?).await?, Vec::new(), "the running ones at last")
}
