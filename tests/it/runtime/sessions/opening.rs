//! Opens that are dropped or interrupted: a session exists completely, or nothing of it exists.

use std::sync::Arc;

use conjure::config::ExecutorKind;
use conjure::{Clock as _, Runtime, RuntimeError, Session, SessionError, SystemClock};
use futures_util::FutureExt as _;

use crate::runtime::fixture::{Fixture, ask, soon, spec, tenant};
use crate::runtime::open_failpoints::{
    OpenHalt, OpenStage, is_busy, leftovers, on_disk, pause, until_nothing_is_left,
};

/// Gives an opening up after it was polled so often. Returns the session where it was open by then.
async fn open_for(runtime: &Runtime, polls: usize) -> Option<Session> {
    let mut opening = Box::pin(runtime.open(spec()));
    for _ in 0..polls {
        if let Some(opened) = opening.as_mut().now_or_never() {
            return Some(opened.unwrap());
        }
        tokio::task::yield_now().await;
    }
    None
}

async fn drop_at_every_await() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let mut polls = 0;
    // Twice as many each time, and one and a half: early steps are short, late ones are long.
    loop {
        if let Some(session) = open_for(&runtime, polls).await {
            // It is known, and is of use. Others may still be under way.
            assert!(runtime.session_ids(&tenant("acme")).await.unwrap().contains(&session.id()));
            assert_eq!(ask(&session, "hello").await, "heard: hello");
            runtime.delete(&tenant("acme"), session.id()).await.unwrap();
            break;
        }
        polls = (polls + 1).max(polls * 5 / 4);
    }
    until_nothing_is_left(&fixture, &runtime).await;
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!(on_disk(&fixture), [0; 3]);
}

#[tokio::test]
async fn an_open_dropped_at_any_await_leaves_nothing() {
    drop_at_every_await().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_open_dropped_at_any_await_leaves_nothing_on_many_threads() {
    drop_at_every_await().await;
}

/// Until it is dropped, the session is partially present; then nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_open_dropped_half_way_leaves_nothing() {
    for (point, there) in [(OpenStage::Preparation, (0, [1, 1, 1])), (OpenStage::Start, (1, [1, 1, 1]))] {
        let fixture = Fixture::new(ExecutorKind::Jail);
        let halt = OpenHalt::at(point);
        let runtime = halt.start(&fixture).await;
        let mut opening = Box::pin(runtime.open(OpenHalt::spec()));
        assert!(opening.as_mut().now_or_never().is_none());
        halt.reached(1).await;
        assert_eq!((leftovers(&fixture, &runtime).await, is_busy(&fixture)), (there, true), "{point:?}");
        drop(opening);
        halt.release();
        until_nothing_is_left(&fixture, &runtime).await;
        runtime.shutdown(soon()).await.unwrap();
    }
}

/// The next start completes an open that a deadline interrupted: a recorded session stays, as a caller may have its id.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_open_interrupted_by_shutdown_is_completed_at_the_next_start() {
    for (point, there) in [(OpenStage::Preparation, (0, [0, 0, 0])), (OpenStage::Start, (1, [1, 1, 0]))] {
        let fixture = Fixture::new(ExecutorKind::Jail);
        let halt = OpenHalt::at(point);
        let runtime = halt.start(&fixture).await;
        let mut opening = Box::pin(runtime.open(OpenHalt::spec()));
        assert!(opening.as_mut().now_or_never().is_none());
        halt.reached(1).await;
        let passed = SystemClock.deadline(std::time::Duration::ZERO);
        let _ = runtime.shutdown(passed).await;
        let error = opening.await.unwrap_err();
        assert!(matches!(error, RuntimeError::Session(SessionError::ShuttingDown)), "{error}");
        assert_eq!(on_disk(&fixture), [1; 3]);
        halt.release();
        drop(runtime);

        let runtime = halt.start(&fixture).await;
        assert_eq!(leftovers(&fixture, &runtime).await, there, "{point:?}");
        if let [id] = *runtime.session_ids(&tenant("acme")).await.unwrap() {
            let session = runtime.session(&tenant("acme"), id).await.unwrap();
            assert_eq!(ask(&session, "hello").await, "heard: hello");
        }
        runtime.shutdown(soon()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn shutdown_waits_for_running_opens_and_starts_no_more() {
    for point in [OpenStage::Preparation, OpenStage::Start] {
        let fixture = Fixture::new(ExecutorKind::Jail);
        let halt = OpenHalt::at(point);
        let runtime = halt.start(&fixture).await;
        let mut opening = Box::pin(runtime.open(OpenHalt::spec()));
        assert!(opening.as_mut().now_or_never().is_none());
        halt.reached(1).await;
        let mut ending = Box::pin(runtime.shutdown(soon()));
        assert!(ending.as_mut().now_or_never().is_none());
        for refused in [
            runtime.open(spec()).await.unwrap_err(),
            runtime.session(&tenant("acme"), conjure::SessionId::from_bits(7)).await.unwrap_err(),
            runtime.delete(&tenant("acme"), conjure::SessionId::from_bits(7)).await.unwrap_err(),
        ] {
            assert!(matches!(refused, RuntimeError::Session(SessionError::ShuttingDown)), "{refused}");
        }
        halt.release();
        let (ended, opened) = futures_util::future::join(ending, opening).await;
        ended.unwrap();
        let id = opened.unwrap().id();
        drop(runtime);
        let runtime = halt.start(&fixture).await;
        assert_eq!(leftovers(&fixture, &runtime).await, (1, [1, 1, 0]), "{point:?}");
        let session = runtime.session(&tenant("acme"), id).await.unwrap();
        assert_eq!(ask(&session, "hello").await, "heard: hello");
        runtime.shutdown(soon()).await.unwrap();
    }
}

/// A deletion, and a session that is looked for, continue without who began them.
#[tokio::test]
async fn a_dropped_deletion_is_completed() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    for polls in 1..12 {
        let session = runtime.open(spec()).await.unwrap();
        let acme = tenant("acme");
        let mut deletion = Box::pin(runtime.delete(&acme, session.id()));
        for _ in 0..polls {
            if deletion.as_mut().now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(deletion);
        until_nothing_is_left(&fixture, &runtime).await;
    }
    runtime.shutdown(soon()).await.unwrap();
}

/// All blocking work has one thread: a task that waits for another one must not occupy it.
#[test]
fn sessions_are_opened_and_deleted_at_once_where_one_thread_may_block() {
    let one = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    one.block_on(async {
        let fixture = Fixture::new(ExecutorKind::Jail);
        let runtime = Arc::new(fixture.start().await);
        let rounds = (0..4).map(|place| {
            let (runtime, fixture) = (Arc::clone(&runtime), &fixture);
            async move {
                for round in 0..6 {
                    // Each has a skill of its own, so that each deletion removes one.
                    let name = format!("skill-{place}-{round}");
                    fixture.write_skill(&name, "One of many.", "true");
                    let session = loop {
                        match runtime.open(spec().skills([name.as_str()])).await {
                            Ok(session) => break session,
                            // It is not seen yet.
                            Err(RuntimeError::UnknownSkills { .. }) => tokio::task::yield_now().await,
                            Err(error) => panic!("{error}"),
                        }
                    };
                    runtime.delete(&tenant("acme"), session.id()).await.unwrap();
                }
            }
        });
        let all = futures_util::future::join_all(rounds);
        let is_over = tokio::time::timeout(std::time::Duration::from_secs(120), all).await;
        assert!(is_over.is_ok(), "they wait for each other");
        // A deletion in whose way somebody was for too long has left the rest to it; and so may a run of it that met the last of
        // them, which leaves it to the next run.
        let clearing = async {
            loop {
                runtime.maintenance().run("directories", soon()).await.unwrap();
                pause().await;
            }
        };
        tokio::select! {
            () = until_nothing_is_left(&fixture, &runtime) => {}
            () = clearing => {}
        }
        runtime.shutdown(soon()).await.unwrap();
    });
}
