//! Who gets a spare, and who starts what at a time.

use std::num::NonZeroU32;
use std::time::Duration;

use conjure_actors::admission::Share;
use conjure_base::{Clock as _, SystemClock, TenantId};
use conjure_sandbox::{SandboxError, SandboxErrorKind};
use futures_util::future::{join, join_all};

use crate::bed::{Bed, Maker, Start, claim, soon};

#[tokio::test(start_paused = true)]
async fn spares_are_ready_claimed_once_and_replaced() {
    let bed = Bed::of_size(3).await;
    bed.maker.until(|seen| seen.alive.len() == 3).await;
    let claimed = join_all((0..3).map(|_| claim(&bed.pool))).await;
    let mut numbers: Vec<_> = claimed.into_iter().map(Option::unwrap).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(claim(&bed.pool).await, None, "it is empty for a moment");
    bed.maker.until(|seen| seen.alive.len() == 6 && seen.starting == 0).await;
    assert!(claim(&bed.pool).await.is_some_and(|number| number > 2));
    let stats = bed.pool.stats();
    assert_eq!((stats.hits, stats.misses, stats.died, stats.failed), (4, 1, 0, 0));
    assert!(stats.refills >= 6, "{stats:?}");
    assert_eq!(bed.maker.seen().most_starting, 2, "so many at a time");
    let seen = bed.end().await;
    // The others were put away; what was claimed is whose it is.
    assert_eq!(seen.alive.len(), 4);
}

/// S10: refills and direct starts pass one gate; who finds the queue full is told.
#[tokio::test(start_paused = true)]
async fn sixty_four_at_once_queue_and_one_too_many_is_overloaded() {
    let bed = Bed::with(4, Maker::new(), |options| {
        options.share = Share { waiting: 60, weight: NonZeroU32::MIN, ..Share::default() };
    })
    .await;
    let tenant = TenantId::new("acme").unwrap();
    let start = async |_| {
        if let Some(number) = claim(&bed.pool).await {
            return Ok(Some(number));
        }
        let _permit = bed.pool.admit(&tenant, soon()).await?;
        let _starting = bed.maker.starting();
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(10))).await;
        Ok::<_, conjure_actors::admission::Overloaded>(None)
    };
    bed.maker.until(|seen| seen.alive.len() == 4).await;
    let outcomes = join_all((0..64).map(start)).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert!(bed.maker.seen().most_starting <= 2);
    let stats = bed.pool.stats();
    assert_eq!((stats.hits + stats.misses, stats.waiting), (64, 0));
    // Without spares, one more than may wait is refused at once.
    bed.maker.next_starts([Start::Hangs, Start::Hangs]);
    while claim(&bed.pool).await.is_some() {}
    bed.maker.until(|seen| seen.starting == 2).await;
    let outcomes =
        join_all((0..64).map(|_| bed.pool.admit(&tenant, SystemClock.deadline(Duration::from_secs(1)))))
            .await;
    let at_once =
        outcomes.iter().filter(|outcome| outcome.as_ref().is_err_and(|error| error.waiting == 60)).count();
    assert!(at_once >= 4, "{outcomes:?}");
    bed.end().await;
}

/// A spare is had by whoever comes next, and those who wait are before that one: nothing is made for it meanwhile, also where
/// the pool asked before all of them, and where a tenant has the name that spares once waited under.
#[tokio::test(start_paused = true)]
async fn spares_are_made_when_nobody_waits_for_a_start() {
    let bed = Bed::of_size(2).await;
    bed.maker.until(|seen| seen.alive.len() == 2).await;
    let tenants = ["refills", "acme"].map(|name| TenantId::new(name).unwrap());
    let held = join_all(tenants.iter().map(|tenant| bed.pool.admit(tenant, soon()))).await;
    while claim(&bed.pool).await.is_some() {}
    while bed.pool.stats().waiting < 2 {
        tokio::task::yield_now().await;
    }
    let starts = (0..8).map(async |number| {
        let _permit = bed.pool.admit(&tenants[number % 2], soon()).await.unwrap();
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(10))).await;
        bed.maker.seen().calls.len()
    });
    let release = async {
        while bed.pool.stats().waiting < 10 {
            tokio::task::yield_now().await;
        }
        drop(held);
    };
    let (calls, ()) = join(join_all(starts), release).await;
    assert_eq!(calls, [2; 8], "no more than those of the beginning");
    bed.maker.until(|seen| seen.alive.len() == 4 && seen.starting == 0).await;
    bed.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_claimed_is_not_a_hit() {
    let bed = Bed::of_size(2).await;
    bed.maker.until(|seen| seen.alive.len() == 2).await;
    let fails = async |kind| {
        let claimed = bed.pool.claim(|_| async move { Err::<(), _>(SandboxError::new(kind, "no")) }).await;
        assert_eq!(claimed, None);
    };
    // One that has just ended is no reason not to take the next one.
    fails(SandboxErrorKind::Lost).await;
    assert_eq!((bed.pool.stats().ready, bed.pool.stats().misses), (0, 1));
    bed.maker.until(|seen| seen.alive.len() == 4 && seen.starting == 0).await;
    // Anything else is.
    fails(SandboxErrorKind::NoSpace).await;
    let stats = bed.pool.stats();
    assert_eq!((stats.ready, stats.hits, stats.misses), (1, 0, 2));
    bed.end().await;
}
