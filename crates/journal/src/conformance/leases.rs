//! Leases and epochs.

use std::time::Duration;

use super::fixture::{
    CaseResult, JournalFixture, bodies, ensure, ensure_eq, ensure_fails, new_session, notes, open_session,
    tenant,
};
use crate::error::{JournalError, JournalErrorKind};
use crate::journal::Journal;
use crate::key::{Epoch, SessionKey};
use crate::lease::{Lease, LeaseOwner};

const HOUR: Duration = Duration::from_secs(3_600);

/// The maximum number of attempts to acquire a lease that will expire. Each attempt takes the journal some time.
const ATTEMPTS: u32 = 1_000_000;

/// Waits until the lease of another owner has expired, and acquires it.
async fn await_end(
    journal: &dyn Journal,
    key: &SessionKey,
    owner: &LeaseOwner,
) -> Result<Lease, super::CaseError> {
    for _ in 0..ATTEMPTS {
        match journal.acquire_lease(key, owner, HOUR).await {
            Err(JournalError::LeaseHeld { .. }) => {}
            other => return Ok(other?),
        }
    }
    Err("a lease does not end".into())
}

pub(crate) async fn a_lease_excludes_others_until_it_ends(fixture: &dyn JournalFixture) -> CaseResult {
    let journals = [fixture.open().await?, fixture.open().await?];
    let key = new_session(&*journals[0], &tenant("acme")?).await?;
    let (one, other) = (LeaseOwner::new("one")?, LeaseOwner::new("other")?);
    let lease = journals[0].acquire_lease(&key, &one, HOUR).await?;
    ensure_eq((&lease.owner, lease.epoch), (&one, Epoch::NONE.next()), "the lease")?;
    let refused = journals[1].acquire_lease(&key, &other, HOUR).await;
    let lease_held = JournalError::LeaseHeld { owner: one.clone(), until: lease.until };
    ensure_eq(refused, Err(lease_held), "somebody else's attempt")?;
    ensure_eq(journals[1].session(&key).await?.lease, Some(lease.clone()), "the reported lease")?;
    // Shorten the lease, so that it expires soon.
    let short = journals[0].renew_lease(&key, lease.epoch, Duration::from_millis(1)).await?;
    ensure(short.until < lease.until, "the lease was not made shorter")?;
    let renewed = await_end(&*journals[1], &key, &other).await?;
    ensure_eq((&renewed.owner, renewed.epoch), (&other, lease.epoch.next()), "the lease that was taken")?;
    // The longest lease ends with the range of the clock.
    let ever = journals[1].renew_lease(&key, renewed.epoch, Duration::MAX).await?;
    ensure(ever.until > renewed.until, "the longest lease")
}

pub(crate) async fn a_new_epoch_makes_the_old_one_stale(fixture: &dyn JournalFixture) -> CaseResult {
    let journals = [fixture.open().await?, fixture.open().await?];
    let key = new_session(&*journals[0], &tenant("acme")?).await?;
    journals[0].append(&key, 0, Epoch::NONE, notes(["a"])).await?;
    let one = journals[0].acquire_lease(&key, &LeaseOwner::new("one")?, Duration::from_millis(1)).await?;
    journals[0].append(&key, 1, one.epoch, notes(["b"])).await?;
    let other = await_end(&*journals[1], &key, &LeaseOwner::new("other")?).await?;
    for epoch in [Epoch::NONE, one.epoch, other.epoch.next()] {
        let stale = JournalError::StaleEpoch { epoch, current: other.epoch };
        ensure_eq(journals[0].append(&key, 2, epoch, notes(["x"])).await, Err(stale), "another epoch")?;
    }
    // A writer with a stale epoch learns nothing about the sequence number.
    let kind = JournalErrorKind::StaleEpoch;
    ensure_fails(journals[0].append(&key, 0, one.epoch, notes(["x"])).await, kind, "both wrong")?;
    journals[1].append(&key, 2, other.epoch, notes(["c"])).await?;
    ensure_eq(bodies(&*journals[0], &key).await?.concat(), "abc".to_owned(), "the events")?;
    let events = crate::journal::read_all(&*journals[0], &key, 0).await?;
    let epochs: Vec<Epoch> = events.iter().map(|event| event.epoch).collect();
    ensure_eq(epochs, vec![Epoch::NONE, one.epoch, other.epoch], "the epochs")
}

pub(crate) async fn an_owner_may_take_its_own_lease_again(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    let owner = LeaseOwner::new("one")?;
    let first = journal.acquire_lease(&key, &owner, HOUR).await?;
    let second = journal.acquire_lease(&key, &owner, HOUR).await?;
    ensure(second.epoch > first.epoch, "the epoch did not rise")?;
    let kind = JournalErrorKind::StaleEpoch;
    ensure_fails(journal.append(&key, 0, first.epoch, notes(["a"])).await, kind, "the first incarnation")?;
    ensure_fails(journal.release_lease(&key, first.epoch).await, kind, "the first incarnation's release")?;
    ensure_eq(journal.append(&key, 0, second.epoch, notes(["a"])).await?, 1, "the count")
}

pub(crate) async fn a_lease_is_renewed_by_its_epoch_only(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    let kind = JournalErrorKind::StaleEpoch;
    ensure_fails(journal.renew_lease(&key, Epoch::NONE, HOUR).await, kind, "a renewal without a lease")?;
    let owner = LeaseOwner::new("one")?;
    let lease = journal.acquire_lease(&key, &owner, Duration::from_secs(60)).await?;
    for epoch in [Epoch::NONE, lease.epoch.next()] {
        ensure_fails(journal.renew_lease(&key, epoch, HOUR).await, kind, "a renewal under another epoch")?;
    }
    let renewed = journal.renew_lease(&key, lease.epoch, HOUR).await?;
    ensure_eq((&renewed.owner, renewed.epoch), (&owner, lease.epoch), "the renewed lease")?;
    ensure(renewed.until > lease.until, "the lease was not made longer")?;
    // An expired lease that no other owner has acquired can be renewed, too.
    journal.renew_lease(&key, lease.epoch, Duration::ZERO).await?;
    journal.append(&key, 0, lease.epoch, notes(["a"])).await?;
    journal.renew_lease(&key, lease.epoch, HOUR).await?;
    let kind = JournalErrorKind::LeaseHeld;
    ensure_fails(
        journal.acquire_lease(&key, &LeaseOwner::new("other")?, HOUR).await,
        kind,
        "somebody else's attempt",
    )?;
    Ok(())
}

pub(crate) async fn a_released_lease_is_free_and_its_epoch_stale(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    let lease = journal.acquire_lease(&key, &LeaseOwner::new("one")?, HOUR).await?;
    journal.release_lease(&key, lease.epoch).await?;
    let kind = JournalErrorKind::StaleEpoch;
    ensure_fails(journal.append(&key, 0, lease.epoch, notes(["a"])).await, kind, "an append after it")?;
    ensure_fails(journal.renew_lease(&key, lease.epoch, HOUR).await, kind, "a renewal after it")?;
    ensure_fails(journal.release_lease(&key, lease.epoch).await, kind, "a second release")?;
    ensure_eq(journal.session(&key).await?.lease, None, "the reported lease")?;
    let other = journal.acquire_lease(&key, &LeaseOwner::new("other")?, HOUR).await?;
    ensure(other.epoch > lease.epoch, "the epoch did not rise")
}
