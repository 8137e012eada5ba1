//! Claims of pool items, and the limit of concurrent starts.

use std::num::NonZeroU32;
use std::time::Duration;

use conjure_actors::admission::Share;
use conjure_base::{Clock as _, SystemClock, TenantId};
use conjure_sandbox::{SandboxError, SandboxErrorKind};
use futures_util::future::{join, join_all};

use crate::fixture::{FakeFactory, Fixture, Start, claim, soon};

#[tokio::test(start_paused = true)]
async fn pool_items_are_ready_claimed_once_and_replaced() {
    let fixture = Fixture::of_size(3).await;
    fixture.factory.until(|state| state.alive.len() == 3).await;
    let claimed = join_all((0..3).map(|_| claim(&fixture.pool))).await;
    let mut numbers: Vec<_> = claimed.into_iter().map(Option::unwrap).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(claim(&fixture.pool).await, None, "it is empty temporarily");
    fixture.factory.until(|state| state.alive.len() == 6 && state.starting == 0).await;
    assert!(claim(&fixture.pool).await.is_some_and(|number| number > 2));
    let stats = fixture.pool.stats();
    assert_eq!((stats.hits, stats.misses, stats.died, stats.failed), (4, 1, 0, 0));
    assert!(stats.refills >= 6, "{stats:?}");
    assert_eq!(fixture.factory.seen().most_starting, 2, "so many at a time");
    let state = fixture.end().await;
    // The other items were stopped; claimed items stay with their owners.
    assert_eq!(state.alive.len(), 4);
}

/// Refills and direct starts share one gate; a full queue rejects requests.
#[tokio::test(start_paused = true)]
async fn sixty_four_concurrent_claims_queue_and_one_more_is_rejected() {
    let fixture = Fixture::with(4, FakeFactory::new(), |options| {
        options.share = Share { waiting: 60, weight: NonZeroU32::MIN, ..Share::default() };
    })
    .await;
    let tenant = TenantId::new("acme").unwrap();
    let start = async |_| {
        if let Some(number) = claim(&fixture.pool).await {
            return Ok(Some(number));
        }
        let _permit = fixture.pool.admit(&tenant, soon()).await?;
        let _starting = fixture.factory.starting();
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(10))).await;
        Ok::<_, conjure_actors::admission::Overloaded>(None)
    };
    fixture.factory.until(|seen| seen.alive.len() == 4).await;
    let outcomes = join_all((0..64).map(start)).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert!(fixture.factory.seen().most_starting <= 2);
    let stats = fixture.pool.stats();
    assert_eq!((stats.hits + stats.misses, stats.waiting), (64, 0));
    // Without pool items, one more than may wait is refused at once.
    fixture.factory.next_starts([Start::Hangs, Start::Hangs]);
    while claim(&fixture.pool).await.is_some() {}
    fixture.factory.until(|seen| seen.starting == 2).await;
    let outcomes =
        join_all((0..64).map(|_| fixture.pool.admit(&tenant, SystemClock.deadline(Duration::from_secs(1)))))
            .await;
    let at_once =
        outcomes.iter().filter(|outcome| outcome.as_ref().is_err_and(|error| error.waiting == 60)).count();
    assert!(at_once >= 4, "{outcomes:?}");
    fixture.end().await;
}

/// A pool item is had by whoever comes next, and those who wait are before that one: nothing is made for it in the meantime, also where
/// the pool asked before all of them, and where a tenant has the name that pool items once waited under.
#[tokio::test(start_paused = true)]
async fn pool_items_are_created_when_no_start_is_waiting() {
    let fixture = Fixture::of_size(2).await;
    fixture.factory.until(|seen| seen.alive.len() == 2).await;
    let tenants = ["refills", "acme"].map(|name| TenantId::new(name).unwrap());
    let permits = join_all(tenants.iter().map(|tenant| fixture.pool.admit(tenant, soon()))).await;
    while claim(&fixture.pool).await.is_some() {}
    while fixture.pool.stats().waiting < 2 {
        tokio::task::yield_now().await;
    }
    let starts = (0..8).map(async |number| {
        let _permit = fixture.pool.admit(&tenants[number % 2], soon()).await.unwrap();
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(10))).await;
        fixture.factory.seen().calls.len()
    });
    let release = async {
        while fixture.pool.stats().waiting < 10 {
            tokio::task::yield_now().await;
        }
        drop(permits);
    };
    let (calls, ()) = join(join_all(starts), release).await;
    assert_eq!(calls, [2; 8], "no more than those of the beginning");
    fixture.factory.until(|seen| seen.alive.len() == 4 && seen.starting == 0).await;
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_unclaimable_item_is_not_a_hit() {
    let fixture = Fixture::of_size(2).await;
    fixture.factory.until(|seen| seen.alive.len() == 2).await;
    let fails = async |kind| {
        let claimed =
            fixture.pool.claim(|_| async move { Err::<(), _>(SandboxError::new(kind, "no")) }).await;
        assert_eq!(claimed, None);
    };
    // One that has just ended is no reason not to take the next one.
    fails(SandboxErrorKind::Lost).await;
    assert_eq!((fixture.pool.stats().ready, fixture.pool.stats().misses), (0, 1));
    fixture.factory.until(|seen| seen.alive.len() == 4 && seen.starting == 0).await;
    // Anything else is.
    fails(SandboxErrorKind::NoSpace).await;
    let stats = fixture.pool.stats();
    assert_eq!((stats.ready, stats.hits, stats.misses), (1, 0, 2));
    fixture.end().await;
}
