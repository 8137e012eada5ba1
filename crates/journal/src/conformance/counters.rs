//! Counters of tenants: they change with appends, and only with those that happen.

use futures_util::future::join_all;

use super::bed::{Bed, Failure, Outcome, fails, new_session, notes, same, tenant};
use crate::charge::{Charge, LARGEST_COUNT, LONGEST_COUNTER};
use crate::error::JournalErrorKind;
use crate::journal::Journal;
use crate::key::{Epoch, SessionKey};
use crate::lease::Owner;

fn charges<const N: usize>(charges: [(&'static str, u64); N]) -> Vec<Charge> {
    charges.into_iter().map(|(counter, amount)| Charge::new(counter, amount)).collect()
}

async fn counts<const N: usize>(
    journal: &dyn Journal,
    key: &SessionKey,
    names: [&str; N],
) -> Result<Vec<u64>, Failure> {
    Ok(journal.counters(&key.tenant, names.map(str::to_owned).into()).await?)
}

pub(crate) async fn counters_count_over_all_sessions_of_a_tenant(bed: &dyn Bed) -> Outcome {
    let journal = bed.open().await?;
    let (acme, globex) = (tenant("acme")?, tenant("globex")?);
    let one = new_session(&*journal, &acme).await?;
    let two = new_session(&*journal, &acme).await?;
    let other = new_session(&*journal, &globex).await?;
    same(counts(&*journal, &one, ["a", "b"]).await?, vec![0, 0], "the counters at first")?;
    let append = |key, seq, charged| journal.append_charged(key, seq, Epoch::NONE, notes(["x"]), charged);
    append(&one, 0, charges([("a", 1), ("b", 10)])).await?;
    append(&two, 0, charges([("a", 2), ("a", 3)])).await?;
    append(&other, 0, charges([("a", 100)])).await?;
    same(counts(&*journal, &one, ["b", "a", "c"]).await?, vec![10, 6, 0], "the tenant's counters")?;
    same(counts(&*journal, &other, ["a"]).await?, vec![100], "the other's counter")?;
    // They stay when a session goes, and are there when the journal is opened again.
    journal.delete_session(&one).await?;
    let again = bed.open().await?;
    same(counts(&*again, &two, ["a", "b"]).await?, vec![6, 10], "the counters after a deletion")?;
    same(again.session_count(&acme).await?, 1, "the tenant's sessions")
}

pub(crate) async fn an_append_that_does_not_happen_charges_nothing(bed: &dyn Bed) -> Outcome {
    let journal = bed.open().await?;
    let key = new_session(&*journal, &tenant("acme")?).await?;
    let append = |key: &SessionKey, seq, epoch, charged| {
        journal.append_charged(key, seq, epoch, notes(["x"]), charged)
    };
    let one = || charges([("a", 1)]);
    fails(append(&key, 1, Epoch::NONE, one()).await, JournalErrorKind::Conflict, "a conflict")?;
    let lease = journal.acquire(&key, &Owner::new("host")?, std::time::Duration::from_secs(60)).await?;
    fails(append(&key, 0, Epoch::NONE, one()).await, JournalErrorKind::StaleEpoch, "a stale epoch")?;
    let nowhere = SessionKey::new(tenant("acme")?, conjure_base::SessionId::random()?);
    fails(append(&nowhere, 0, Epoch::NONE, one()).await, JournalErrorKind::NotFound, "no session")?;
    let long = vec![Charge::new("n".repeat(LONGEST_COUNTER + 1), 1)];
    fails(append(&key, 0, lease.epoch, long).await, JournalErrorKind::Invalid, "a long name")?;
    // Without events it only checks.
    let checked = journal.append_charged(&key, 0, lease.epoch, Vec::new(), one()).await?;
    same(checked, 0, "the events")?;
    same(counts(&*journal, &key, ["a"]).await?, vec![0], "the counter")?;
    append(&key, 0, lease.epoch, one()).await?;
    same(counts(&*journal, &key, ["a"]).await?, vec![1], "the counter behind an append")
}

pub(crate) async fn counters_of_many_writers_add_up(bed: &dyn Bed) -> Outcome {
    const SESSIONS: u64 = 16;
    let journal = bed.open().await?;
    let acme = tenant("acme")?;
    let mut keys = Vec::new();
    for _ in 0..SESSIONS {
        keys.push(new_session(&*journal, &acme).await?);
    }
    let second = bed.open().await?;
    let all = keys.iter().zip([&journal, &second].into_iter().cycle()).map(|(key, journal)| async move {
        for seq in 0..10 {
            let charged = charges([("tokens", 7), ("calls", 1)]);
            journal.append_charged(key, seq, Epoch::NONE, notes(["x"]), charged).await?;
        }
        Ok::<(), Failure>(())
    });
    join_all(all).await.into_iter().collect::<Result<Vec<()>, _>>()?;
    let found = counts(&*journal, &keys[0], ["tokens", "calls"]).await?;
    same(found, vec![SESSIONS * 70, SESSIONS * 10], "the sums")
}

pub(crate) async fn counters_stop_at_the_largest_count(bed: &dyn Bed) -> Outcome {
    let journal = bed.open().await?;
    let key = new_session(&*journal, &tenant("acme")?).await?;
    for (seq, amount) in (0..).zip([LARGEST_COUNT - 1, 1, 1, u64::MAX, 0]) {
        let charged = charges([("a", amount), ("b", u64::MAX)]);
        journal.append_charged(&key, seq, Epoch::NONE, notes(["x"]), charged).await?;
    }
    same(counts(&*journal, &key, ["a", "b"]).await?, vec![LARGEST_COUNT; 2], "the counters")
}

pub(crate) async fn counters_go_with_their_tenant(bed: &dyn Bed) -> Outcome {
    let journal = bed.open().await?;
    let (acme, globex) = (tenant("acme")?, tenant("globex")?);
    for tenant in [&acme, &globex] {
        let key = new_session(&*journal, tenant).await?;
        journal.append_charged(&key, 0, Epoch::NONE, notes(["x"]), charges([("a", 5)])).await?;
    }
    same(journal.delete_tenant(&acme).await?, 1, "how many were deleted")?;
    same(journal.session_count(&acme).await?, 0, "the sessions")?;
    same(journal.counters(&acme, vec!["a".to_owned()]).await?, vec![0], "the counter")?;
    same(journal.counters(&globex, vec!["a".to_owned()]).await?, vec![5], "the other's")
}
