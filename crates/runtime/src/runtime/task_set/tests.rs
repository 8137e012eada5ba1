use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;

use super::*;

fn soon() -> Deadline {
    SystemClock.deadline(Duration::from_secs(60))
}

/// Something that is begun, takes so many steps, and is there; and what undoes it.
async fn steps(there: Arc<AtomicBool>, steps: usize) -> Result<u32, RuntimeError> {
    there.store(true, Ordering::Release);
    for _ in 0..steps {
        tokio::task::yield_now().await;
    }
    Ok(7)
}

#[tokio::test]
async fn what_nobody_took_is_undone_whenever_it_was_given_up() {
    let mut was_taken = [false; 20];
    for (polls, taken) in was_taken.iter_mut().enumerate() {
        let work = TaskSet::default();
        let there = Arc::new(AtomicBool::new(false));
        let (making, undoing) = (Arc::clone(&there), Arc::clone(&there));
        let undo = async move {
            tokio::task::yield_now().await;
            undoing.store(false, Ordering::Release);
        };
        {
            let mut handing = pin!(work.run_or_undo("a test", steps(making, 5), undo));
            for _ in 0..polls {
                if let Some(value) = handing.as_mut().now_or_never() {
                    assert_eq!(value.unwrap(), 7);
                    *taken = true;
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(work.close(soon()).await, CloseOutcome::Completed);
        assert_eq!(there.load(Ordering::Acquire), *taken, "after {polls} polls");
    }
    assert!(!was_taken[5] && was_taken[19], "{was_taken:?}");
}

#[tokio::test]
async fn what_is_done_as_a_whole_is_done_when_nobody_waits() {
    let work = TaskSet::default();
    let there = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&there);
    let doing = async move {
        tokio::task::yield_now().await;
        done.store(true, Ordering::Release);
        Ok(())
    };
    assert!(work.run("a test", doing).now_or_never().is_none());
    assert_eq!(work.close(soon()).await, CloseOutcome::Completed);
    assert!(there.load(Ordering::Acquire));
    let refused = work.run("a test", async { Ok(()) }).await.unwrap_err();
    assert!(matches!(refused, RuntimeError::Session(SessionError::ShuttingDown)), "{refused}");
}

#[tokio::test]
async fn a_defect_is_reported_and_a_deadline_ends_what_runs() {
    let work = TaskSet::default();
    let defect = work.run("a test", async { Err::<(), _>(RuntimeError::NoModel) }).await.unwrap_err();
    assert!(matches!(defect, RuntimeError::NoModel));
    let endless = std::future::pending::<Result<(), RuntimeError>>();
    let mut waiting = pin!(work.run("a test", endless));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(work.close(SystemClock.deadline(Duration::ZERO)).await, CloseOutcome::Aborted);
    let ended = waiting.await.unwrap_err();
    assert!(matches!(ended, RuntimeError::Session(SessionError::ShuttingDown)), "{ended}");
}
