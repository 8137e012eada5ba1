//! Queries of records: order, filters, bounds, pages and cursors.

use std::ops::Bound;

use super::fixture::{CaseError, CaseResult, ensure, ensure_eq, tenant};
use super::records_fixture::key;
use super::records_fixture::{RecordsFixture, RecordsUnderTest, content, ensure_rejected, insert, kind};
use crate::record::{
    Direction, IndexName, IndexValue, MAX_RECORD_BYTES, Record, RecordContent, RecordCursor, RecordErrorKind,
    RecordOrder, RecordQuery, RecordScope,
};

const DIRECTIONS: [Direction; 2] = [Direction::Ascending, Direction::Descending];

fn index(name: &'static str) -> Result<IndexName, CaseError> {
    Ok(IndexName::new(name)?)
}

fn all() -> Result<RecordQuery, CaseError> {
    Ok(RecordQuery::new(tenant("acme")?, kind("agent")?))
}

/// All pages of a query, each with at most two records.
async fn pages(store: &RecordsUnderTest, query: &RecordQuery) -> Result<Vec<Record>, CaseError> {
    let mut query = query.clone().with_limit(2);
    let mut found = Vec::new();
    loop {
        let page = store.records.query(query.clone()).await?;
        ensure(page.records.len() <= 2, "a page has more than its limit")?;
        ensure(page.next.is_none() || page.records.len() == 2, "a page before the last one is full")?;
        found.extend(page.records);
        let Some(next) = page.next else { return Ok(found) };
        // As text, a cursor outlives the process.
        query.after = Some(next.to_string().parse::<RecordCursor>()?);
    }
}

async fn ids(store: &RecordsUnderTest, query: &RecordQuery) -> Result<Vec<String>, CaseError> {
    Ok(pages(store, query).await?.iter().map(|record| record.key.id().to_owned()).collect())
}

/// The expected ids, in this direction.
fn directed(mut ids: Vec<String>, direction: Direction) -> Vec<String> {
    if direction == Direction::Descending {
        ids.reverse();
    }
    ids
}

/// Inserts twelve agents, `00` to `11`, with indexes. Also inserts records of another tenant and of another kind.
async fn twelve_records(fixture: &dyn RecordsFixture) -> Result<RecordsUnderTest, CaseError> {
    let store = fixture.open().await?;
    for n in 0..12_i64 {
        // Many records have the same rank, and some have none. Numbers come before texts.
        let rank = match n % 4 {
            0 => Some(IndexValue::Number(n / 4 - 1)),
            1 => Some(IndexValue::Text(format!("t{}", n / 6))),
            2 => Some(IndexValue::Number(5)),
            _ => None,
        };
        let mut indexed = content(b"").with_index(index("even")?, n % 2).with_index(index("third")?, n % 3);
        if let Some(rank) = rank {
            indexed = indexed.with_index(index("rank")?, rank);
        }
        insert(&store, &key("acme", "agent", &format!("{n:02}"))?, indexed.clone()).await?;
        insert(&store, &key("globex", "agent", &format!("{n:02}"))?, indexed.clone()).await?;
        insert(&store, &key("acme", "skill", &format!("{n:02}"))?, indexed).await?;
    }
    Ok(store)
}

pub(crate) async fn pages_hold_each_record_once_in_order(fixture: &dyn RecordsFixture) -> CaseResult {
    let store = twelve_records(fixture).await?;
    for direction in DIRECTIONS {
        let by_time = all()?.with_order(RecordOrder::CREATED_AT, direction);
        let expected = (0..12).map(|n| format!("{n:02}")).collect();
        ensure_eq(ids(&store, &by_time).await?, directed(expected, direction), "by time")?;
        let by_rank = all()?.with_order(RecordOrder::index(index("rank")?), direction);
        let expected = ["00", "04", "08", "02", "06", "10", "01", "05", "09"].map(str::to_owned).to_vec();
        ensure_eq(ids(&store, &by_rank).await?, directed(expected, direction), "by an index")?;
        let by_nothing = all()?.with_order(RecordOrder::index(index("nothing")?), direction);
        ensure_eq(ids(&store, &by_nothing).await?, Vec::new(), "by an index that no record has")?;
    }
    let empty_query = RecordQuery::new(RecordScope::System, kind("agent")?);
    ensure_eq(ids(&store, &empty_query).await?, Vec::new(), "of no tenant")
}

pub(crate) async fn filters_and_bounds_exclude_other_records(fixture: &dyn RecordsFixture) -> CaseResult {
    let store = twelve_records(fixture).await?;
    let records = pages(&store, &all()?.with_order(RecordOrder::CREATED_AT, Direction::Ascending)).await?;
    for direction in DIRECTIONS {
        let check = async |query: RecordQuery, expected: &[&str], what: &str| {
            let expected = expected.iter().map(|id| (*id).to_owned()).collect();
            ensure_eq(ids(&store, &query).await?, directed(expected, direction), what)
        };
        let by_time = || Ok::<_, CaseError>(all()?.with_order(RecordOrder::CREATED_AT, direction));
        let even = by_time()?.with_filter(index("even")?, 0);
        check(even.clone(), &["00", "02", "04", "06", "08", "10"], "one filter").await?;
        check(even.with_filter(index("third")?, 0), &["00", "06"], "two filters").await?;
        check(by_time()?.with_filter(index("even")?, "0"), &[], "a text that is no number").await?;
        let rank = |from, to| -> Result<RecordQuery, CaseError> {
            let order = RecordOrder::Index { name: index("rank")?, from, to };
            Ok(all()?.with_order(order, direction))
        };
        let (number, text) = (IndexValue::Number, |text: &str| IndexValue::Text(text.to_owned()));
        let ranges = [
            (Bound::Included(number(0)), Bound::Excluded(number(5)), vec!["04", "08"]),
            (Bound::Excluded(number(0)), Bound::Included(number(5)), vec!["08", "02", "06", "10"]),
            (Bound::Excluded(number(5)), Bound::Unbounded, vec!["01", "05", "09"]),
            (Bound::Included(text("t1")), Bound::Included(text("t1")), vec!["09"]),
            (Bound::Included(number(5)), Bound::Excluded(number(0)), vec![]),
        ];
        for (from, to, expected) in ranges {
            check(rank(from, to)?, &expected, "a range").await?;
        }
        let filtered = rank(Bound::Unbounded, Bound::Unbounded)?.with_filter(index("third")?, 0);
        check(filtered, &["00", "06", "09"], "an order by an index, with a filter").await?;
        // The bounds of the order by time come from the records themselves.
        let created_at = records[5].created_at;
        let bounds = [
            (Bound::Included(created_at), Bound::Unbounded),
            (Bound::Excluded(created_at), Bound::Unbounded),
            (Bound::Unbounded, Bound::Included(created_at)),
            (Bound::Included(created_at), Bound::Excluded(created_at)),
        ];
        for (from, to) in bounds {
            let fits = |record: &&Record| {
                let time = record.created_at;
                (match from {
                    Bound::Included(from) => time >= from,
                    Bound::Excluded(from) => time > from,
                    Bound::Unbounded => true,
                }) && match to {
                    Bound::Included(to) => time <= to,
                    Bound::Excluded(to) => time < to,
                    Bound::Unbounded => true,
                }
            };
            let expected: Vec<&str> = records.iter().filter(fits).map(|record| record.key.id()).collect();
            let ranged = all()?.with_order(RecordOrder::CreatedAt { from, to }, direction);
            check(ranged, &expected, "a range of time").await?;
        }
    }
    Ok(())
}

pub(crate) async fn a_cursor_is_stable_while_records_come_and_go(fixture: &dyn RecordsFixture) -> CaseResult {
    let store = twelve_records(fixture).await?;
    for direction in DIRECTIONS {
        for order in [RecordOrder::CREATED_AT, RecordOrder::index(index("rank")?)] {
            let query = all()?.with_order(order, direction);
            let expected = ids(&store, &query).await?;
            let first = store.records.query(query.clone().with_limit(4)).await?;
            // The last record of the page is deleted, and others are inserted before and after it.
            let last = first.records.last().ok_or("an empty page")?.clone();
            ensure_eq(first.next.clone(), query.cursor_at(&last), "the cursor of a record")?;
            ensure(store.records.delete(&last.key, None).await?, "it was deleted")?;
            let rest = ids(&store, &query.clone().with_after(first.next.clone())).await?;
            let new: Vec<String> = ["new-1", "new-2"].map(str::to_owned).to_vec();
            for (id, rank) in new.iter().zip([i64::MIN, i64::MAX]) {
                let indexed: RecordContent = content(b"").with_index(index("rank")?, rank);
                insert(&store, &key("acme", "agent", id)?, indexed).await?;
            }
            let after = ids(&store, &query.clone().with_after(first.next)).await?;
            let old: Vec<String> = after.into_iter().filter(|id| !new.contains(id)).collect();
            ensure_eq(&old, &expected[4..].to_vec(), "the other pages")?;
            ensure_eq(&rest, &old, "the other pages before")?;
            for id in &new {
                ensure(store.records.delete(&key("acme", "agent", id)?, None).await?, "it was deleted")?;
            }
        }
    }
    Ok(())
}

pub(crate) async fn a_cursor_of_another_query_is_refused(fixture: &dyn RecordsFixture) -> CaseResult {
    let store = twelve_records(fixture).await?;
    let query = all()?.with_filter(index("even")?, 0).with_limit(2);
    let cursor = store.records.query(query.clone()).await?.next.ok_or("there is no next page")?;
    let others = [
        RecordQuery { scope: RecordScope::System, ..query.clone() },
        RecordQuery { kind: kind("skill")?, ..query.clone() },
        RecordQuery { direction: Direction::Ascending, ..query.clone() },
        RecordQuery { order: RecordOrder::index(index("even")?), ..query.clone() },
        RecordQuery { filters: vec![(index("even")?, IndexValue::Number(1))], ..query.clone() },
        RecordQuery { filters: Vec::new(), ..query.clone() },
    ];
    for other in others {
        let page = store.records.query(other.with_after(cursor.clone())).await;
        ensure_rejected(page, RecordErrorKind::WrongCursor, "a cursor of another query")?;
    }
    // A cursor is valid for any bounds and limits.
    let from = Bound::Unbounded;
    let order = RecordOrder::CreatedAt { from, to: Bound::Included(conjure_base::Timestamp::from_millis(0)) };
    let page = store.records.query(RecordQuery { order, ..query }.with_limit(7).with_after(cursor)).await?;
    ensure_eq(page.records.len(), 0, "the records before 1970")?;
    for text in ["", "r1", "r1_1_1", "r1_1_1_1_x", "r1_1_1_1_t0", "r1_1_1_1_tff", "r2_1_1_1", "r1_1_1_1_n1_2"]
    {
        ensure_rejected(text.parse::<RecordCursor>(), RecordErrorKind::WrongCursor, text)?;
    }
    Ok(())
}

pub(crate) async fn a_page_of_large_bodies_is_short(fixture: &dyn RecordsFixture) -> CaseResult {
    const RECORDS: usize = 20;
    let store = fixture.open().await?;
    for n in 0..RECORDS {
        let body = vec![u8::try_from(n)?; MAX_RECORD_BYTES];
        insert(&store, &key("acme", "agent", &n.to_string())?, content(&body)).await?;
    }
    let (mut query, mut found, mut pages) = (all()?, 0, 0);
    loop {
        let page = store.records.query(query.clone()).await?;
        ensure(!page.records.is_empty(), "a page has a record")?;
        found += page.records.len();
        pages += 1;
        let Some(next) = page.next else { break };
        query.after = Some(next);
    }
    ensure_eq(found, RECORDS, "the records")?;
    ensure(pages > 1, "the bodies are on several pages")
}
