//! Subscriptions start at any event, and are read at any pace.

use conjure_actors::session::Update;

use crate::scenario::{Host, Scenario, answered, options};
use crate::support::memory;

/// The sequence numbers of the updates until this one, and how often the reader lagged.
async fn read_until(listening: &mut conjure_actors::session::Subscription, last: u64) -> (Vec<u64>, usize) {
    let (mut seqs, mut lagged) = (Vec::new(), 0);
    while listening.next_seq() <= last || seqs.last() != Some(&last) {
        match listening.next().await.unwrap() {
            Update::Recorded(event) => seqs.push(event.seq),
            Update::Lagged => lagged += 1,
            _ => {}
        }
    }
    (seqs, lagged)
}

#[tokio::test]
async fn a_slow_reader_misses_no_recorded_event_and_delays_nothing() {
    let mut small = options("first");
    small.ring = (8, 1 << 20);
    let host = Host::over(memory(), Scenario::default(), small).await;
    let session = host.open().await;
    let mut slow = session.subscribe(0).await.unwrap();
    for number in 0..40 {
        let turn = session.send(format!("call note {number}")).await.unwrap();
        assert_eq!(turn.end().await, Ok(answered()));
    }
    let last = session.snapshot().await.unwrap().events - 1;
    let (seqs, lagged) = read_until(&mut slow, last).await;
    assert!(seqs.is_sorted());
    assert!(lagged > 0);
    let (all, _) = read_until(&mut session.subscribe(0).await.unwrap(), last).await;
    assert_eq!(seqs, all);

    // From the middle, from the end, and from what is not there yet.
    for from in [last / 2, last] {
        let (some, _) = read_until(&mut session.subscribe(from).await.unwrap(), last).await;
        let expected: Vec<u64> = all.iter().copied().filter(|seq| *seq >= from).collect();
        assert_eq!(some, expected);
    }
    let mut later = session.subscribe(last + 1).await.unwrap();
    let turn = session.send("more").await.unwrap();
    assert_eq!(turn.end().await, Ok(answered()));
    let new_last = session.snapshot().await.unwrap().events - 1;
    let (seqs, _) = read_until(&mut later, new_last).await;
    assert_eq!(seqs.first(), Some(&(last + 1)));
    host.shutdown().await;
}

/// A client that disconnects ends nothing.
#[tokio::test]
async fn dropping_a_turn_and_every_subscription_does_not_end_the_turn() {
    let host = Host::new().await;
    let session = host.open().await;
    let turn = session.send("door").await.unwrap();
    let listening = session.subscribe(0).await.unwrap();
    host.scenario.reached(1).await;
    drop((turn, listening));
    host.scenario.open();
    let (_, lagged) = read_until(&mut session.subscribe(0).await.unwrap(), 3).await;
    assert_eq!(lagged, 0);
    host.shutdown().await;
}

/// A reader that is at the end continues over the actor's restarts.
#[tokio::test]
async fn a_reader_continues_across_restarts() {
    let host = Host::new().await;
    let session = host.open().await;
    assert_eq!(session.send("one").await.unwrap().end().await, Ok(answered()));
    let mut listening = session.subscribe(0).await.unwrap();
    let last = session.snapshot().await.unwrap().events - 1;
    let (mut seqs, _) = read_until(&mut listening, last).await;
    for _ in 0..2 {
        session.kill();
        assert_eq!(session.send("again").await.unwrap().end().await, Ok(answered()));
    }
    let last = session.snapshot().await.unwrap().events - 1;
    seqs.extend(read_until(&mut listening, last).await.0);
    let (all, _) = read_until(&mut session.subscribe(0).await.unwrap(), last).await;
    assert_eq!(seqs, all);
    host.shutdown().await;
}
