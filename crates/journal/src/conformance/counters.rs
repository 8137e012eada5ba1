//! Counters of tenants, and the size of their data. They change with appends, and only with those that succeed.

use futures_util::future::join_all;

use super::fixture::{
    CaseError, CaseResult, JournalFixture, ensure, ensure_eq, ensure_fails, new_session, notes, open_session,
    tenant,
};
use crate::counter::{CounterIncrement, MAX_COUNT, MAX_COUNTER_NAME_BYTES};
use crate::error::JournalErrorKind;
use crate::event::ROW_BYTES;
use crate::journal::Journal;
use crate::key::{Epoch, SessionKey};
use crate::lease::LeaseOwner;
use crate::session::Snapshot;

fn increments<const N: usize>(increments: [(&'static str, u64); N]) -> Vec<CounterIncrement> {
    increments.into_iter().map(|(counter, amount)| CounterIncrement::new(counter, amount)).collect()
}

async fn counts<const N: usize>(
    journal: &dyn Journal,
    key: &SessionKey,
    names: [&str; N],
) -> Result<Vec<u64>, CaseError> {
    Ok(journal.counters(&key.tenant, names.map(str::to_owned).into()).await?)
}

pub(crate) async fn counters_count_over_all_sessions_of_a_tenant(fixture: &dyn JournalFixture) -> CaseResult {
    let journal = fixture.open().await?;
    let (acme, globex) = (tenant("acme")?, tenant("globex")?);
    let one = new_session(&*journal, &acme).await?;
    let two = new_session(&*journal, &acme).await?;
    let other = new_session(&*journal, &globex).await?;
    ensure_eq(counts(&*journal, &one, ["a", "b"]).await?, vec![0, 0], "the counters at first")?;
    let append =
        |key, seq, charged| journal.append_with_counters(key, seq, Epoch::NONE, notes(["x"]), charged);
    append(&one, 0, increments([("a", 1), ("b", 10)])).await?;
    append(&two, 0, increments([("a", 2), ("a", 3)])).await?;
    append(&other, 0, increments([("a", 100)])).await?;
    ensure_eq(counts(&*journal, &one, ["b", "a", "c"]).await?, vec![10, 6, 0], "the tenant's counters")?;
    ensure_eq(counts(&*journal, &other, ["a"]).await?, vec![100], "the other's counter")?;
    // Counters survive the deletion of a session, and the reopening of the journal.
    journal.delete_session(&one).await?;
    let reopened = fixture.open().await?;
    ensure_eq(counts(&*reopened, &two, ["a", "b"]).await?, vec![6, 10], "the counters after a deletion")?;
    ensure_eq(reopened.session_count(&acme).await?, 1, "the tenant's sessions")
}

pub(crate) async fn a_failed_append_increments_nothing(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    let append = |key: &SessionKey, seq, epoch, charged| {
        journal.append_with_counters(key, seq, epoch, notes(["x"]), charged)
    };
    let one = || increments([("a", 1)]);
    ensure_fails(append(&key, 1, Epoch::NONE, one()).await, JournalErrorKind::Conflict, "a conflict")?;
    let lease =
        journal.acquire_lease(&key, &LeaseOwner::new("host")?, std::time::Duration::from_secs(60)).await?;
    ensure_fails(append(&key, 0, Epoch::NONE, one()).await, JournalErrorKind::StaleEpoch, "a stale epoch")?;
    let nowhere = SessionKey::new(tenant("acme")?, conjure_base::SessionId::random()?);
    ensure_fails(append(&nowhere, 0, Epoch::NONE, one()).await, JournalErrorKind::NotFound, "no session")?;
    let long = vec![CounterIncrement::new("n".repeat(MAX_COUNTER_NAME_BYTES + 1), 1)];
    ensure_fails(append(&key, 0, lease.epoch, long).await, JournalErrorKind::Invalid, "a long name")?;
    // An append without events only checks.
    let checked = journal.append_with_counters(&key, 0, lease.epoch, Vec::new(), one()).await?;
    ensure_eq(checked, 0, "the events")?;
    ensure_eq(counts(&*journal, &key, ["a"]).await?, vec![0], "the counter")?;
    append(&key, 0, lease.epoch, one()).await?;
    ensure_eq(counts(&*journal, &key, ["a"]).await?, vec![1], "the counter behind an append")
}

pub(crate) async fn counters_of_many_writers_add_up(fixture: &dyn JournalFixture) -> CaseResult {
    const SESSIONS: u64 = 16;
    let journal = fixture.open().await?;
    let acme = tenant("acme")?;
    let mut keys = Vec::new();
    for _ in 0..SESSIONS {
        keys.push(new_session(&*journal, &acme).await?);
    }
    let second = fixture.open().await?;
    let all = keys.iter().zip([&journal, &second].into_iter().cycle()).map(|(key, journal)| async move {
        for seq in 0..10 {
            let charged = increments([("tokens", 7), ("calls", 1)]);
            journal.append_with_counters(key, seq, Epoch::NONE, notes(["x"]), charged).await?;
        }
        Ok::<(), CaseError>(())
    });
    join_all(all).await.into_iter().collect::<Result<Vec<()>, _>>()?;
    let found = counts(&*journal, &keys[0], ["tokens", "calls"]).await?;
    ensure_eq(found, vec![SESSIONS * 70, SESSIONS * 10], "the sums")
}

pub(crate) async fn counters_are_incremented_without_an_append(fixture: &dyn JournalFixture) -> CaseResult {
    let journal = fixture.open().await?;
    let (acme, globex) = (tenant("acme")?, tenant("globex")?);
    let key = new_session(&*journal, &acme).await?;
    journal.increment_counters(&acme, increments([("a", 2), ("b", 1), ("a", 3)])).await?;
    // A dropped increment is carried out all the same, before the calls that are submitted later.
    drop(journal.increment_counters(&acme, increments([("a", 10)])));
    journal.append_with_counters(&key, 0, Epoch::NONE, notes(["x"]), increments([("a", 100)])).await?;
    // A tenant without sessions can have counters.
    journal.increment_counters(&globex, increments([("a", 7)])).await?;
    journal.increment_counters(&globex, Vec::new()).await?;
    let long =
        vec![CounterIncrement::new("a", 1), CounterIncrement::new("n".repeat(MAX_COUNTER_NAME_BYTES + 1), 1)];
    ensure_fails(journal.increment_counters(&globex, long).await, JournalErrorKind::Invalid, "a long name")?;
    let reopened = fixture.open().await?;
    ensure_eq(counts(&*reopened, &key, ["a", "b"]).await?, vec![115, 1], "the tenant's counters")?;
    ensure_eq(reopened.counters(&globex, vec!["a".to_owned()]).await?, vec![7], "the other's")?;
    ensure_eq(reopened.session(&key).await?.events, 1, "the events")
}

pub(crate) async fn counters_are_listed_and_deleted(fixture: &dyn JournalFixture) -> CaseResult {
    let journal = fixture.open().await?;
    let (acme, globex) = (tenant("acme")?, tenant("globex")?);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    ensure_eq(journal.list_counters(&acme).await?, Vec::new(), "the names at first")?;
    ensure_eq(journal.delete_counters(&acme, names(&["a"])).await?, 0, "what is forgotten of nothing")?;
    journal.increment_counters(&acme, increments([("b", 2), ("a", 1), ("c", 3)])).await?;
    journal.increment_counters(&globex, increments([("a", 7)])).await?;
    ensure_eq(journal.list_counters(&acme).await?, names(&["a", "b", "c"]), "the names")?;
    ensure_eq(journal.delete_counters(&acme, names(&["a", "c", "d", "a"])).await?, 2, "what is forgotten")?;
    let reopened = fixture.open().await?;
    ensure_eq(reopened.list_counters(&acme).await?, names(&["b"]), "the names that are left")?;
    ensure_eq(
        reopened.counters(&acme, names(&["a", "b", "c"])).await?,
        vec![0, 2, 0],
        "the counters that are left",
    )?;
    ensure_eq(reopened.counters(&globex, names(&["a"])).await?, vec![7], "the other's")?;
    // A deleted counter starts again at 0.
    reopened.increment_counters(&acme, increments([("a", 5)])).await?;
    ensure_eq(reopened.counters(&acme, names(&["a"])).await?, vec![5], "the new one")
}

pub(crate) async fn counters_stop_at_the_largest_count(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    for (seq, amount) in (0..).zip([MAX_COUNT - 1, 1, 1, u64::MAX, 0]) {
        let charged = increments([("a", amount), ("b", u64::MAX)]);
        journal.append_with_counters(&key, seq, Epoch::NONE, notes(["x"]), charged).await?;
    }
    ensure_eq(counts(&*journal, &key, ["a", "b"]).await?, vec![MAX_COUNT; 2], "the counters")
}

pub(crate) async fn counters_are_deleted_with_their_tenant(fixture: &dyn JournalFixture) -> CaseResult {
    let journal = fixture.open().await?;
    let (acme, globex) = (tenant("acme")?, tenant("globex")?);
    for tenant in [&acme, &globex] {
        let key = new_session(&*journal, tenant).await?;
        journal.append_with_counters(&key, 0, Epoch::NONE, notes(["x"]), increments([("a", 5)])).await?;
    }
    ensure_eq(journal.delete_tenant(&acme).await?, 1, "how many were deleted")?;
    ensure_eq(journal.session_count(&acme).await?, 0, "the sessions")?;
    ensure_eq(journal.counters(&acme, vec!["a".to_owned()]).await?, vec![0], "the counter")?;
    ensure_eq(journal.counters(&globex, vec!["a".to_owned()]).await?, vec![5], "the other's")
}

pub(crate) async fn stored_bytes_are_counted_until_they_are_deleted(
    fixture: &dyn JournalFixture,
) -> CaseResult {
    let journal = fixture.open().await?;
    let (acme, globex) = (tenant("acme")?, tenant("globex")?);
    ensure_eq(journal.stored_bytes(&acme).await?, 0, "the data of a tenant without sessions")?;
    let (one, two) = (new_session(&*journal, &acme).await?, new_session(&*journal, &acme).await?);
    new_session(&*journal, &globex).await?;
    ensure_eq(journal.stored_bytes(&acme).await?, 2 * ROW_BYTES, "two sessions")?;
    // Bodies may be stored outside of the database.
    let grown = async |before: u64, rows: u64, kinds: u64, bodies: u64, what: &str| {
        let now = journal.stored_bytes(&acme).await?;
        let least = before + rows * ROW_BYTES + kinds;
        ensure((least..=least + bodies).contains(&now), &format!("{what}: {now} behind {before}"))?;
        Ok::<u64, CaseError>(now)
    };
    journal.append(&one, 0, Epoch::NONE, notes(["abc", "de"])).await?;
    journal.append(&two, 0, Epoch::NONE, notes(["f"])).await?;
    let appended = grown(2 * ROW_BYTES, 3, 12, 6, "events").await?;
    let refused = journal.append(&one, 0, Epoch::NONE, notes(["abc"])).await;
    ensure_fails(refused, JournalErrorKind::Conflict, "a conflict")?;
    grown(appended, 0, 0, 0, "an append that did not happen").await?;
    let snapshot = |seq, body: &[u8]| Snapshot { seq, version: 1, body: body.to_vec() };
    journal.save_snapshot(&one, Epoch::NONE, snapshot(1, b"longer")).await?;
    grown(appended, 1, 0, 6, "a snapshot").await?;
    // The new snapshot replaces the previous one.
    journal.save_snapshot(&one, Epoch::NONE, snapshot(2, b"s")).await?;
    let all = grown(appended, 1, 0, 1, "another snapshot").await?;
    ensure_eq(
        fixture.open().await?.stored_bytes(&acme).await?,
        all,
        "what is found when it is opened again",
    )?;
    ensure_eq(journal.stored_bytes(&globex).await?, ROW_BYTES, "the other tenant's")?;
    journal.delete_session(&one).await?;
    grown(ROW_BYTES, 1, 4, 1, "the session that is left").await?;
    journal.delete_tenant(&acme).await?;
    ensure_eq(journal.stored_bytes(&acme).await?, 0, "the data of a deleted tenant")?;
    ensure_eq(journal.stored_bytes(&globex).await?, ROW_BYTES, "the other tenant's, then")
}
