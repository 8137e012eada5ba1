//! Spares that die, grow old or cannot be made, and the end of a pool.

use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};
use conjure_sandbox::SandboxErrorKind;

use crate::bed::{Bed, Maker, Start, claim};

const HOUR: Duration = Duration::from_secs(3_600);

async fn pass(time: Duration) {
    SystemClock.sleep_until(SystemClock.deadline(time)).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_dies_while_it_waits_is_given_to_nobody_and_replaced() {
    let bed = Bed::of_size(2).await;
    bed.maker.until(|seen| seen.alive.len() == 2).await;
    bed.maker.kill(0);
    // Also before anybody has noticed.
    assert_eq!(claim(&bed.pool).await, Some(1));
    assert_eq!(claim(&bed.pool).await, None);
    bed.maker.until(|seen| seen.retired == [0]).await;
    pass(Duration::from_secs(5)).await;
    let stats = bed.pool.stats();
    assert_eq!((stats.ready, stats.died), (2, 1));
    bed.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_made_is_tried_less_and_less_often_until_it_can() {
    let maker = Maker::new();
    maker.next_starts([Start::Fails(SandboxErrorKind::EngineUnavailable); 12]);
    let bed = Bed::with(4, maker, |_| {}).await;
    pass(HOUR).await;
    let stats = bed.pool.stats();
    assert_eq!((stats.failed, stats.ready), (12, 4));
    assert_eq!(stats.last_failure.as_deref(), Some("as it was told"));
    let calls = bed.maker.seen().calls;
    let waits: Vec<_> = calls.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // The first two were begun at once, together.
    assert!(waits[1..11].iter().all(|wait| *wait >= Duration::from_millis(500)), "{waits:?}");
    assert!(waits[9] >= Duration::from_secs(30), "{waits:?}");
    bed.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_never_can_be_made_is_not_tried_again() {
    let maker = Maker::new();
    maker.next_starts([Start::Fails(SandboxErrorKind::Unsupported); 2]);
    let bed = Bed::with(4, maker, |_| {}).await;
    pass(HOUR).await;
    assert_eq!(bed.maker.seen().calls.len(), 2);
    assert_eq!(claim(&bed.pool).await, None);
    assert!(bed.shown().contains("4 of 4 warm sandboxes"), "{}", bed.shown());
    bed.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_too_old_is_replaced() {
    let bed = Bed::with(2, Maker::new(), |options| options.max_age = HOUR).await;
    pass(HOUR / 2).await;
    assert_eq!(bed.pool.stats().ready, 2);
    pass(HOUR).await;
    let stats = bed.pool.stats();
    assert_eq!((stats.ready, stats.retired, stats.died), (2, 2, 0));
    assert_eq!(bed.maker.seen().retired.len(), 2);
    let seen = bed.end().await;
    assert_eq!(seen.alive.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_leaves_none_whatever_is_under_way() {
    let maker = Maker::new();
    let bed = Bed::with(4, maker.clone(), |_| {}).await;
    maker.until(|seen| seen.alive.len() == 4).await;
    // One is being retired, one hangs at its start, one waits for its turn.
    maker.next_starts([Start::Hangs, Start::Hangs]);
    for _ in 0..3 {
        claim(&bed.pool).await.unwrap();
    }
    maker.until(|seen| seen.starting == 2).await;
    let pool = bed.pool.clone();
    let seen = bed.end().await;
    // Three were somebody's.
    assert_eq!((seen.alive.len(), seen.starting), (3, 0));
    assert_eq!(claim(&pool).await, None);
    assert_eq!((pool.stats().ready, pool.stats().starting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_is_killed_leaves_none_and_its_successor_begins_anew() {
    let bed = Bed::of_size(2).await;
    bed.maker.until(|seen| seen.alive.len() == 2).await;
    bed.actor.kill();
    bed.maker.until(|seen| seen.retired.len() == 2).await;
    bed.maker.until(|seen| seen.alive.len() == 2 && seen.calls.len() == 4).await;
    pass(Duration::from_secs(1)).await;
    assert!(claim(&bed.pool).await.is_some_and(|number| number >= 2));
    bed.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_none_makes_none() {
    let bed = Bed::of_size(0).await;
    pass(HOUR).await;
    assert_eq!(claim(&bed.pool).await, None);
    let seen = bed.end().await;
    assert_eq!(seen.calls.len(), 0);
}
