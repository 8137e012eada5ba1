//! Pool items that die, expire or cannot be created, and the end of a pool.

use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};
use conjure_sandbox::SandboxErrorKind;

use crate::fixture::{FakeFactory, Fixture, Start, claim};

const HOUR: Duration = Duration::from_secs(3_600);

async fn pass(time: Duration) {
    SystemClock.sleep_until(SystemClock.deadline(time)).await;
}

#[tokio::test(start_paused = true)]
async fn an_item_that_dies_in_the_pool_is_replaced() {
    let fixture = Fixture::of_size(2).await;
    fixture.factory.until(|seen| seen.alive.len() == 2).await;
    fixture.factory.kill(0);
    // Also before anybody has noticed.
    assert_eq!(claim(&fixture.pool).await, Some(1));
    assert_eq!(claim(&fixture.pool).await, None);
    fixture.factory.until(|seen| seen.retired == [0]).await;
    pass(Duration::from_secs(5)).await;
    let stats = fixture.pool.stats();
    assert_eq!((stats.ready, stats.died), (2, 1));
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn failed_creations_are_retried_with_backoff() {
    let factory = FakeFactory::new();
    factory.next_starts([Start::Fails(SandboxErrorKind::EngineUnavailable); 12]);
    let fixture = Fixture::with(4, factory, |_| {}).await;
    pass(HOUR).await;
    let stats = fixture.pool.stats();
    assert_eq!((stats.failed, stats.ready), (12, 4));
    assert_eq!(stats.last_failure.as_deref(), Some("as it was told"));
    let calls = fixture.factory.seen().calls;
    let delays: Vec<_> = calls.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // The first two were begun at once, together.
    assert!(delays[1..11].iter().all(|wait| *wait >= Duration::from_millis(500)), "{delays:?}");
    assert!(delays[9] >= Duration::from_secs(30), "{delays:?}");
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn permanently_failing_creations_are_not_retried() {
    let factory = FakeFactory::new();
    factory.next_starts([Start::Fails(SandboxErrorKind::Unsupported); 2]);
    let fixture = Fixture::with(4, factory, |_| {}).await;
    pass(HOUR).await;
    assert_eq!(fixture.factory.seen().calls.len(), 2);
    assert_eq!(claim(&fixture.pool).await, None);
    assert!(fixture.shown().contains("4 of 4 warm sandboxes"), "{}", fixture.shown());
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_item_is_replaced() {
    let fixture = Fixture::with(2, FakeFactory::new(), |options| options.max_age = HOUR).await;
    pass(HOUR / 2).await;
    assert_eq!(fixture.pool.stats().ready, 2);
    pass(HOUR).await;
    let stats = fixture.pool.stats();
    assert_eq!((stats.ready, stats.retired, stats.died), (2, 2, 0));
    assert_eq!(fixture.factory.seen().retired.len(), 2);
    let state = fixture.end().await;
    assert_eq!(state.alive.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_leaves_no_items() {
    let factory = FakeFactory::new();
    let fixture = Fixture::with(4, factory.clone(), |_| {}).await;
    factory.until(|state| state.alive.len() == 4).await;
    // One is being retired, one hangs at its start, one waits for its turn.
    factory.next_starts([Start::Hangs, Start::Hangs]);
    for _ in 0..3 {
        claim(&fixture.pool).await.unwrap();
    }
    factory.until(|state| state.starting == 2).await;
    let pool = fixture.pool.clone();
    let state = fixture.end().await;
    // Three items were claimed.
    assert_eq!((state.alive.len(), state.starting), (3, 0));
    assert_eq!(claim(&pool).await, None);
    assert_eq!((pool.stats().ready, pool.stats().starting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_killed_pool_leaves_no_items_and_its_restart_refills() {
    let fixture = Fixture::of_size(2).await;
    fixture.factory.until(|seen| seen.alive.len() == 2).await;
    fixture.actor.kill();
    fixture.factory.until(|seen| seen.retired.len() == 2).await;
    fixture.factory.until(|seen| seen.alive.len() == 2 && seen.calls.len() == 4).await;
    pass(Duration::from_secs(1)).await;
    assert!(claim(&fixture.pool).await.is_some_and(|number| number >= 2));
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_size_zero_creates_nothing() {
    let fixture = Fixture::of_size(0).await;
    pass(HOUR).await;
    assert_eq!(claim(&fixture.pool).await, None);
    let state = fixture.end().await;
    assert_eq!(state.calls.len(), 0);
}
