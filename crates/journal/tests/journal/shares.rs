//! Shares of tenants in a busy journal: a part by their weights, and reserved queue space.

use std::num::NonZeroU32;

use conjure_journal::{
    Epoch, Journal as _, JournalError, JournalErrorKind, NewEvent, SqliteJournal, SqliteOptions,
    TenantWeights,
};
use futures_util::future::try_join_all;

use crate::support::{OnDisk, key, note, options};

/// How many appends of each of two tenants wait.
const BACKLOG: u64 = 120;

/// Submits appends of two tenants to sessions that hold this many events while somebody else holds the database. Gives whose were
/// done, in the order in which they were.
async fn order(fixture: &OnDisk, journal: &SqliteJournal, from: u64) -> Vec<String> {
    const SQL: &str = "
        SELECT tenant FROM events JOIN sessions ON sessions.id = events.session
        WHERE seq >= ? ORDER BY events.rowid";
    let holder = rusqlite::Connection::open(fixture.database()).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The writer has this one by then, or takes it first.
    let first = journal.create(&key("first", from.into()));
    let appends = ["acme", "globex"].map(|tenant| {
        let key = key(tenant, 1);
        let append = |seq| journal.append(&key, seq, Epoch::NONE, note("x"));
        try_join_all((from..from + BACKLOG).map(append).collect::<Vec<_>>())
    });
    holder.execute_batch("ROLLBACK").unwrap();
    first.await.unwrap();
    try_join_all(appends).await.unwrap();
    let mut rows = holder.prepare(SQL).unwrap();
    let names = rows.query_map([i64::try_from(from).unwrap()], |row| row.get(0)).unwrap();
    names.map(Result::unwrap).collect()
}

/// How many of a hundred are of one tenant, but for one call, once nobody is ahead by what was done before: that was one call at most,
/// and may have been at a lower weight.
fn check(order: &[String], of_acme: usize) {
    let found = order[20..120].iter().filter(|name| *name == "acme").count();
    assert!(found.abs_diff(of_acme) <= 1, "{found} where {of_acme} were expected: {order:?}");
}

#[tokio::test]
async fn a_tenant_of_weight_three_gets_three_times_as_much_of_a_backlog() {
    let fixture = OnDisk::with(SqliteOptions { batch: 1, ..options() });
    let journal = fixture.journal();
    for tenant in ["acme", "globex"] {
        journal.create(&key(tenant, 1)).await.unwrap();
    }
    check(&order(&fixture, &journal, 0).await, 50);
    let weights = TenantWeights::default();
    journal.set_weights(weights.clone());
    weights.set(&key("acme", 1).tenant, NonZeroU32::new(3));
    check(&order(&fixture, &journal, BACKLOG).await, 75);
    // Opened again after it was lost it has the same weights, which are those of today.
    journal.kill_writer_for_test();
    journal.close().await;
    let reopened = journal.reopen().unwrap();
    check(&order(&fixture, &reopened, 2 * BACKLOG).await, 75);
    weights.set(&key("globex", 1).tenant, NonZeroU32::new(9));
    check(&order(&fixture, &reopened, 3 * BACKLOG).await, 25);
}

#[tokio::test]
async fn large_bodies_of_one_tenant_leave_space_for_others() {
    let small = SqliteOptions { batch: 1, queue_bytes: 4_000, queue_bytes_per_tenant: 1_000, ..options() };
    let fixture = OnDisk::with(small);
    let journal = fixture.journal();
    let of = |tenant, size| {
        let event = NewEvent::new("note", 1, vec![b'x'; size]);
        journal.append(&key(tenant, 1), u64::MAX, Epoch::NONE, vec![event])
    };
    let holder = rusqlite::Connection::open(fixture.database()).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    // None of them is recorded: there is no such session. But all of them wait.
    let flood: Vec<_> = (0..40).map(|_| of("acme", 300)).collect();
    // Larger than all that may wait, and alone among its tenant's.
    let (large, behind) = (of("globex", 100_000), of("globex", 1));
    let other = of("initech", 1_000);
    let renewals: Vec<_> = (0..10).map(|_| of("acme", 0)).collect();
    holder.execute_batch("ROLLBACK").unwrap();
    let is_not_found = |error: JournalError| error.kind() == JournalErrorKind::NotFound;
    let mut accepted = 0;
    for call in flood {
        match call.await.unwrap_err() {
            JournalError::Overloaded { tenant, bytes, .. } => {
                assert_eq!((tenant.as_deref(), bytes), (Some("acme"), 900));
            }
            error => {
                assert!(is_not_found(error));
                accepted += 1;
            }
        }
    }
    // Three wait, and one more when the writer has taken the first.
    assert!((3..=4).contains(&accepted), "{accepted}");
    assert!(is_not_found(large.await.unwrap_err()) && is_not_found(other.await.unwrap_err()));
    let refused = behind.await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "1 calls and 100000 bytes wait for the journal for the tenant `globex`; try again later"
    );
    for renewal in renewals {
        assert!(is_not_found(renewal.await.unwrap_err()), "it needs no room for bodies");
    }
}
